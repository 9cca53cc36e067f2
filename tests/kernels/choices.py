"""Rows of logits, with and without a token to choose, that the kernels are tested with."""

from __future__ import annotations

import numpy as np

F32 = np.float32
LARGEST = np.finfo(F32).max
UNUSABLE = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800000], np.uint32)
"""The bits of NaNs of either sign, quiet and signalling, with the smallest and the largest payload, and of +inf."""


def chosen(logits: np.ndarray) -> list[int]:
    """The index of each row's first maximum; -1 for a row with a NaN or +inf, or with nothing but -inf."""
    usable = (logits < np.inf).all(1) & (logits > -np.inf).any(1)
    best = np.where(np.isnan(logits), -np.inf, logits).argmax(1)
    return np.where(usable, best, -1).tolist()


def one_unusable(rng: np.random.Generator, n: int) -> np.ndarray:
    """[n, n]: one value per row is NaN or +inf, at each index once, next to the largest numbers there are."""
    logits = rng.normal(size=(n, n)).astype(F32)
    logits[:, rng.integers(0, n)] = LARGEST
    logits[:, rng.integers(0, n)] = -np.inf
    logits.view(np.uint32)[np.arange(n), np.arange(n)] = UNUSABLE[np.arange(n) % len(UNUSABLE)]
    return logits


def one_usable(rng: np.random.Generator, n: int) -> np.ndarray:
    """[n + 1, n]: -inf but for one number per row, at each index once; the last row has no number."""
    logits = np.full((n + 1, n), -np.inf, F32)
    logits[np.arange(n), np.arange(n)] = rng.choice(np.array([-LARGEST, -1, -0.0, 0, LARGEST], F32), n)
    return logits


def ties(rng: np.random.Generator, n: int, rows: int = 32) -> np.ndarray:
    """[rows, n]: few different values, zeros of either sign among them, which are equal."""
    return rng.choice(np.array([-np.inf, -2, -0.0, 0.0], F32), (rows, n))
