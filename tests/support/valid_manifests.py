"""Manifests that hold, to be broken by tests: the example, the original form, and two that a generator writes."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from kern.checkpoints.config import TransformerConfig, preset
from kern.kernels.host_library import host_kernels
from kern.manifest.writing import write
from kern.models.transformer import build_manifest
from kern.verifier.example import BASE

ORIGINAL_FORM = Path(__file__).parents[1] / "samples" / "original-form.json"

SMOLLM2 = TransformerConfig(
    family="llama", layers=30, hidden=576, ffn=1536, heads=9, kv_heads=3, head_dim=64, vocabulary=49152,
    max_positions=8192, rope_theta=1e5, norm_eps=1e-5, tied_embeddings=True, qk_norm=False,
)  # fmt: skip


class _Pins(dict[str, str]):
    """A hash for any module: nothing is compiled here."""

    def __missing__(self, name: str) -> str:
        return hashlib.sha256(name.encode()).hexdigest()


def generated(config: TransformerConfig, name: str) -> str:
    """The text of the manifest that is built for a model on the host."""
    kernels = host_kernels(_Pins(), q_heads=config.heads, kv_heads=config.kv_heads)
    return write(build_manifest(config, kernels, model=name))


@cache
def texts() -> dict[str, str]:
    """Every valid manifest as text, by name."""
    return {
        "example": BASE,
        "original-form": ORIGINAL_FORM.read_text(),
        "smollm2": generated(SMOLLM2, "smollm2"),
        "qwen3-4b": generated(preset("qwen3", "qwen3-4b"), "qwen3-4b"),
    }


@cache
def documents() -> dict[str, Any]:
    """The same as JSON values. Not to be changed in place."""
    return {name: json.loads(text) for name, text in texts().items()}
