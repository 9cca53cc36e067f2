"""Offsets in one arena for blocks whose lifetimes are known, and the least that any arena could take."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kern.manifest.arrays import round_up
from kern.runtime.lifetimes import Block, BlockKey


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where each block starts, and the bytes that all of them take."""

    of: dict[BlockKey, int]
    size: int


def place(blocks: Sequence[Block]) -> Offsets:
    """Give each block an offset, a multiple of ALIGNMENT, such that no two alive at once overlap.

    Greedy by size: from the largest block to the smallest, each goes into the smallest gap that holds it
    among the blocks placed so far that are alive with it, or behind them. Y. Pisarchyk, J. Lee, "Efficient
    Memory Management for Deep Neural Net Inference", 2020, arXiv:2001.03288, section 5.2.
    """
    placed: list[tuple[int, int, Block]] = []
    offsets: dict[BlockKey, int] = {}
    ordered = sorted(enumerate(blocks), key=lambda item: (-item[1].size, item[0]))
    for order, block in ordered:
        size = round_up(block.size)
        offset = _best_gap(size, ((o, round_up(b.size)) for o, _, b in placed if _overlap(b, block)))
        offsets[block.key] = offset
        insort(placed, (offset, order, block))
    size = max((offset + round_up(block.size) for offset, _, block in placed), default=0)
    return Offsets(offsets, size)


def peak(blocks: Sequence[Block]) -> int:
    """The most bytes alive at one step: no arena can be smaller."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + block.size
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.size
    most = alive = 0
    for step in sorted(changes):
        alive += changes[step]
        most = max(most, alive)
    return most


def _overlap(one: Block, other: Block) -> bool:
    return one.first <= other.last and other.first <= one.last


def _best_gap(size: int, occupied: Iterable[tuple[int, int]]) -> int:
    """The start of the smallest gap of at least `size` between ranges (ordered by offset), or their end."""
    end = 0
    best: tuple[int, int] | None = None
    for offset, length in occupied:
        gap = offset - end
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, end)
        end = max(end, offset + length)
    return end if best is None else best[1]
