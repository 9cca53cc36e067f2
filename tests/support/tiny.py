"""The tiny random models of the tests, and their references."""

from __future__ import annotations

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
