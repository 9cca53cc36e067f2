"""Faults of a draft, made in the folder that was built: the target speaks as before, and the draft guesses worse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

Manifest = dict[str, Any]

_F32_BYTES: Final = 4


def causal_block(manifest: Manifest) -> None:
    """No row of the block sees those after it."""
    kernels = manifest["kernels"]
    kernels["attention_full"]["impl"] = kernels["attention_prefill"]["impl"]


def context_shifted(positions: int) -> Callable[[Manifest], None]:
    """The context is rotated as if it stood this many positions later, so the block begins too early."""

    def change(manifest: Manifest) -> None:
        head_dim = manifest["buffers"]["cos_sin"]["shape"][1]
        for dispatch in _context(manifest):
            if dispatch["kernel"] == "k_rope":
                assert dispatch["args"][2] == {"buf": "cos_sin"}
                dispatch["args"][2]["offset"] = positions * head_dim * _F32_BYTES

    return change


def no_hidden_norm(manifest: Manifest) -> None:
    """The features go into the draft as they are summed."""
    for dispatch in _context(manifest):
        if dispatch["kernel"] == "rms_norm":
            out, features, _, width, _ = dispatch["args"]
            dispatch |= {"kernel": "to_bf16", "args": [out, features, width]}


def no_markov_head(manifest: Manifest) -> None:
    """No row knows which token the one before it gave."""
    draft, kept = manifest["programs"]["draft"], []
    for dispatch in draft["dispatches"]:
        if dispatch["kernel"] == "add_argmax":
            next, logits, _, vocabulary, _ = dispatch["args"]
            kept.append(dispatch | {"kernel": "argmax", "args": [next, logits, vocabulary]})
        elif not dispatch.get("label", "").endswith((".before", ".markov")):
            kept.append(dispatch)
    draft["dispatches"] = kept


def ablated(folder: Path, output: Path, change: Callable[[Manifest], None]) -> Path:
    """A copy of the folder without its weights, the manifest changed and rid of what nothing uses any more."""
    shutil.copytree(folder, output, ignore=shutil.ignore_patterns("*.safetensors"))
    manifest = json.loads((output / "manifest.json").read_text())
    change(manifest)
    dispatches = [dispatch for program in manifest["programs"].values() for dispatch in program["dispatches"]]
    kernels = {dispatch["kernel"] for dispatch in dispatches}
    buffers = {arg.get("buf") for dispatch in dispatches for arg in dispatch["args"]}
    manifest["kernels"] = {name: kernel for name, kernel in manifest["kernels"].items() if name in kernels}
    manifest["buffers"] = {name: buffer for name, buffer in manifest["buffers"].items() if name in buffers}
    (output / "manifest.json").write_text(json.dumps(manifest))
    return output


def _context(manifest: Manifest) -> list[dict[str, Any]]:
    """What makes keys and values of the target's features, for a prompt and for a round."""
    return [
        dispatch
        for program in ("prefill", "draft_precompute")
        for dispatch in manifest["programs"][program]["dispatches"]
        if dispatch.get("label", "").startswith("draft.")
    ]
