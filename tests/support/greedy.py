"""Comparing greedy choices: they may part only where two tokens are nearly tied."""

from __future__ import annotations

from collections.abc import Sequence

from support.reference import Reference

NEAR_TIE = 0.06
"""Logits this close are a tie to arithmetic in bf16."""


def assert_greedy(reference: Reference, prompt: Sequence[int], ids: Sequence[int]) -> None:
    """Each of `ids` must be the reference's choice after those before it, up to a near-tie."""
    logits = reference.logits([*prompt, *ids])[len(prompt) - 1 : -1]
    for step, (row, id) in enumerate(zip(logits, ids, strict=True)):
        margin = float(row.max() - row[id])
        assert margin <= NEAR_TIE, f"step {step} chose {id}, {margin:.4f} below the best, {row.argmax()}"


def assert_same(reference: Reference, prompt: Sequence[int], first: Sequence[int], second: Sequence[int]) -> None:
    """Two runs must be equal up to a first difference that is a near-tie."""
    assert len(first) == len(second)
    parted = next((step for step, (a, b) in enumerate(zip(first, second, strict=True)) if a != b), None)
    if parted is not None:
        row = reference.logits([*prompt, *first[:parted]])[-1]
        margin = abs(float(row[first[parted]] - row[second[parted]]))
        print(f"step {parted}: {first[parted]} or {second[parted]}, margin {margin:.4f}")
        assert margin <= NEAR_TIE
