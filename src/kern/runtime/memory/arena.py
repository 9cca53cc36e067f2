"""Offsets in one arena for blocks whose lifetimes are known, and a lower bound on the size of any arena."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kern.manifest.arrays import round_up
from kern.runtime.memory.lifetimes import Block, BlockKey


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offset of each block, and the bytes that all of them take."""

    of: dict[BlockKey, int]
    size: int


def pack(blocks: Sequence[Block]) -> Offsets:
    """Give each block an offset, a multiple of ALIGNMENT, such that no two alive at once overlap.

    Greedy by size: from the largest block to the smallest, each goes into the smallest gap that holds it
    among the placed blocks that are alive with it, or after them. Y. Pisarchyk, J. Lee, "Efficient
    Memory Management for Deep Neural Net Inference", 2020, arXiv:2001.03288, section 5.2.
    """
    near = _overlapping(blocks)
    starts: dict[int, int] = {}
    for order in sorted(range(len(blocks)), key=lambda order: (-blocks[order].size, order)):
        placed = sorted((starts[other], other) for other in near[order] if other in starts)
        occupied = ((start, round_up(blocks[other].size)) for start, other in placed)
        starts[order] = _best_gap(round_up(blocks[order].size), occupied)
    size = max((start + round_up(blocks[order].size) for order, start in starts.items()), default=0)
    return Offsets({blocks[order].key: start for order, start in starts.items()}, size)


def pairs(blocks: Sequence[Block]) -> int:
    """How many pairs of blocks are alive at once, to which the time and memory of packing are proportional."""
    ends = sorted(block.last for block in blocks)
    begun = enumerate(sorted(block.first for block in blocks))
    return sum(earlier - bisect_left(ends, first) for earlier, first in begun)


def peak(blocks: Sequence[Block]) -> int:
    """The most bytes alive at one launch: no arena can be smaller."""
    changes: dict[int, int] = {}
    for block in blocks:
        changes[block.first] = changes.get(block.first, 0) + block.size
        changes[block.last + 1] = changes.get(block.last + 1, 0) - block.size
    most = alive = 0
    for step in sorted(changes):
        alive += changes[step]
        most = max(most, alive)
    return most


def _overlapping(blocks: Sequence[Block]) -> list[list[int]]:
    """For each block, those that are alive at the same time as it."""
    near: list[list[int]] = [[] for _ in blocks]
    alive: list[int] = []
    for order in sorted(range(len(blocks)), key=lambda order: blocks[order].first):
        alive = [other for other in alive if blocks[other].last >= blocks[order].first]
        for other in alive:
            near[other].append(order)
        near[order] += alive
        alive.append(order)
    return near


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
