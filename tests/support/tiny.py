"""The tiny random models of the tests, and their references."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import numpy as np

from kern.checkpoints.config import preset
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from support.reference import Reference

SEED = 7


def prompt(tokens: int, seed: int = 0) -> list[int]:
    """Random ids of the tiny vocabulary."""
    ids: list[int] = np.random.default_rng(seed).integers(0, 512, size=tokens).tolist()
    return ids


@cache
def tiny_reference(folder: Path) -> Reference:
    """The reference of a folder that the fixture `tiny` built; it is called by its family."""
    family = folder.name
    assert family == "llama" or family == "qwen3"
    checkpoint = RandomCheckpoint(preset(family, "tiny"), SEED)
    return Reference(checkpoint.config, cache(checkpoint.tensor))


def without_feedback(folder: Path, output: Path) -> Path:
    """The folder as it was before programs fed themselves: decode reads the inputs."""
    shutil.copytree(folder, output)
    manifest = json.loads((output / "manifest.json").read_text())
    inputs = {
        "step_token": "token_ids",
        "step_position": "positions",
        "step_slot": "slot_mapping",
        "step_length": "seq_lens",
    }
    feedback = "begin", "lay_rows", "advance", "lay_tokens", "keep_tokens"
    del manifest["programs"]["begin"], manifest["programs"]["step"]
    for kernel in feedback:
        del manifest["kernels"][kernel]
    for buffer in ("slot_token", "slot_position", "token_ring", "row_slots", "row_ids", *inputs):
        del manifest["buffers"][buffer]
    decode = manifest["programs"]["decode"]
    decode["dispatches"] = [dispatch for dispatch in decode["dispatches"] if dispatch["kernel"] not in feedback]
    for dispatch in decode["dispatches"]:
        for arg in dispatch["args"]:
            if "buf" in arg:
                arg["buf"] = inputs.get(arg["buf"], arg["buf"])
    (output / "manifest.json").write_text(json.dumps(manifest))
    return output
