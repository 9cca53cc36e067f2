"""How many bytes each buffer, scratch and state needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kern.manifest.arrays import array_bytes, round_up
from kern.manifest.errors import variant
from kern.manifest.expressions import Expr, Interval, bounds, evaluate
from kern.manifest.types import Buffer, Scratch, State
from kern.runtime.errors import CallError
from kern.runtime.symbols import as_integer
from kern.verifier import VerifiedManifest

ScratchKey = tuple[str, str]
"""Kernel name and scratch name."""


BadCapacity = variant(CallError, "bad-capacity", "A capacity or a number of sequences is below 1.")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Reserved bytes by name: arrays at the upper bounds of their symbols, states at the requested capacity."""

    buffers: Mapping[str, int]
    scratch: Mapping[ScratchKey, int]
    states: Mapping[str, int]


def sizes(verified: VerifiedManifest, capacity: int, sequences: int) -> Sizes:
    """The bytes to reserve for everything in the manifest.

    `capacity` is the number of tokens per sequence. A state with `bytes_per_token` needs that times the capacity,
    rounded up to the state's granule, times `sequences`; a state with `bytes` needs `bytes` times `sequences`.
    Raises BadCapacity.
    """
    for what, count in (("capacity", capacity), ("sequences", sequences)):
        integer = as_integer(count)
        if integer is None or integer < 1:
            raise BadCapacity(f"{what} is {count!r}", "give an integer of at least 1")
    manifest, ranges = verified.manifest, verified.ranges
    return Sizes(
        {name: _most_bytes(buffer, ranges.buffers[name]) for name, buffer in manifest.buffers.items()},
        {
            (kernel, name): _most_bytes(scratch, ranges.kernels[kernel])
            for kernel, entry in manifest.kernels.items()
            for name, scratch in entry.impl.scratch.items()
        },
        {name: _state_bytes(state, capacity, sequences) for name, state in manifest.states.items()},
    )


def dimensions(shape: Sequence[Expr], values: Mapping[str, int]) -> tuple[int, ...]:
    """The shape at `values`. Raises KeyError for a symbol without a value."""
    return tuple(evaluate(dimension, values) for dimension in shape)


def highs(ranges: Mapping[str, Interval]) -> dict[str, int]:
    """The upper bound of each symbol."""
    return {name: high for name, (_, high) in ranges.items()}


def _most_bytes(array: Buffer | Scratch, ranges: Mapping[str, Interval]) -> int:
    return array_bytes(array.dtype, (bounds(extent, ranges)[1] for extent in array.shape))


def _state_bytes(state: State, capacity: int, sequences: int) -> int:
    if state.bytes is not None:
        return state.bytes * sequences
    assert state.bytes_per_token is not None
    return state.bytes_per_token * round_up(capacity, state.granule) * sequences
