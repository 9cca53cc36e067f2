"""How many bytes each buffer, scratch and state needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kern.manifest.arrays import array_bytes, round_up
from kern.manifest.counts import counted
from kern.manifest.errors import variant
from kern.manifest.expressions import Expr, Interval, bounds, evaluate
from kern.manifest.types import Buffer, Scratch, State
from kern.runtime.errors import CallError
from kern.runtime.symbols import as_integer
from kern.verifier import VerifiedManifest

ScratchKey = tuple[str, str]
"""Kernel name and scratch name."""


BadCapacity = variant(CallError, "bad-capacity", "A capacity or a number of sequences is below 1.")
BadPool = variant(CallError, "bad-pool", "A number of pool tokens gives no state memory.")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Reserved bytes by name: arrays at the upper bounds of their symbols, states at the requested sizes.

    `pool_tokens` are the tokens that every state with `bytes_per_token` has room for; 0 without such a state.
    """

    buffers: Mapping[str, int]
    scratch: Mapping[ScratchKey, int]
    states: Mapping[str, int]
    pool_tokens: int


def sizes(verified: VerifiedManifest, capacity: int, sequences: int, pool_tokens: int | None = None) -> Sizes:
    """The bytes to reserve for everything in the manifest.

    `capacity` is the number of tokens per sequence. A state with `bytes_per_token` has room for `pool_tokens`, rounded
    down to its granule; by default for the capacity, rounded up to its granule, times `sequences`. A state with
    `bytes` needs `bytes` times `sequences`. Raises BadCapacity, BadPool.
    """
    capacity, sequences = _count("capacity", capacity), _count("sequences", sequences)
    manifest, ranges = verified.manifest, verified.ranges
    per_token = {name: state for name, state in manifest.states.items() if state.bytes_per_token is not None}
    if pool_tokens is None:
        tokens = {name: round_up(capacity, state.granule) * sequences for name, state in per_token.items()}
    else:
        tokens = _pool(per_token, pool_tokens)
    return Sizes(
        {name: _most_bytes(buffer, ranges.buffers[name]) for name, buffer in manifest.buffers.items()},
        {
            (kernel, name): _most_bytes(scratch, ranges.kernels[kernel])
            for kernel, entry in manifest.kernels.items()
            for name, scratch in entry.impl.scratch.items()
        },
        {
            name: (state.bytes or 0) * sequences + (state.bytes_per_token or 0) * tokens.get(name, 0)
            for name, state in manifest.states.items()
        },
        min(tokens.values(), default=0),
    )


def _count(what: str, given: object) -> int:
    integer = as_integer(given)
    if integer is None or integer < 1:
        raise BadCapacity(f"{what} is {given!r}", "give an integer of at least 1")
    return integer


def _pool(per_token: Mapping[str, State], given: object) -> dict[str, int]:
    """The tokens of each state where a number was asked for: whole granules, at least one."""
    least = max((state.granule for state in per_token.values()), default=0)
    if not least:
        raise BadPool(
            f"pool_tokens is {given!r}, but the manifest has no state with bytes per token", "load without pool_tokens"
        )
    integer = as_integer(given)
    if integer is None or integer < least:
        raise BadPool(
            f"pool_tokens is {given!r}; the largest granule of a state is {counted(least, 'token')}",
            f"give an integer of at least {least}",
        )
    return {name: integer // state.granule * state.granule for name, state in per_token.items()}


def dimensions(shape: Sequence[Expr], values: Mapping[str, int]) -> tuple[int, ...]:
    """The shape at `values`. Raises KeyError for a symbol without a value."""
    return tuple(evaluate(dimension, values) for dimension in shape)


def highs(ranges: Mapping[str, Interval]) -> dict[str, int]:
    """The upper bound of each symbol."""
    return {name: high for name, (_, high) in ranges.items()}


def _most_bytes(array: Buffer | Scratch, ranges: Mapping[str, Interval]) -> int:
    return array_bytes(array.dtype, (bounds(extent, ranges)[1] for extent in array.shape))
