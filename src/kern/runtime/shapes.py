"""The shapes of a manifest's buffers at symbol values."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kern.manifest.errors import variant
from kern.manifest.expressions import Interval
from kern.manifest.references import symbols_of
from kern.manifest.types import Buffer
from kern.runtime.errors import CallError
from kern.runtime.memory.sizes import dimensions, highs
from kern.runtime.symbols import Values, as_integer, checked
from kern.verifier import VerifiedManifest

Shape = tuple[int, ...]
MAX_SHAPES: Final = 32
"""Most shapes of one buffer that are kept for reuse."""


@dataclass(frozen=True, slots=True)
class _Shaped:
    """`ranges` are the buffer's own for the symbols in its shape, and the manifest's for other symbols of a call."""

    needed: frozenset[str]
    ranges: Mapping[str, Interval]
    bounds: Shape
    kept: dict[tuple[tuple[str, object], ...], Shape] = field(default_factory=dict)


WrongShape = variant(CallError, "wrong-shape", "An array does not have the size of what it is written to.")


class BufferShapes:
    """The shape of every buffer at checked symbol values."""

    def __init__(self, verified: VerifiedManifest) -> None:
        self._buffers = verified.manifest.buffers
        self._ranges = verified.ranges.buffers
        self._symbols = dict(verified.ranges.symbols)
        self._shaped: dict[str, _Shaped] = {}

    def at(self, name: str, values: Values | None) -> Shape:
        """The shape of a declared buffer at `values`, or at its symbols' upper bounds. Raises a SymbolError."""
        shaped = self._shaped.get(name)
        if shaped is None:
            shaped = self._shaped[name] = _shaped(self._buffers[name], self._ranges[name], self._symbols)
        if values is None:
            return shaped.bounds
        # True equals 1, so only values that are exactly integers may be keys.
        key = tuple(values.items()) if type(values) is dict and set(map(type, values.values())) <= {int} else None
        if key is not None and key in shaped.kept:
            return shaped.kept[key]
        named = checked(shaped.needed, shaped.ranges, values, f"buffer {name!r}")
        shape = dimensions(self._buffers[name].shape, named)
        if key is not None and len(shaped.kept) < MAX_SHAPES:
            shaped.kept[key] = shape
        return shape


def _shaped(buffer: Buffer, ranges: Mapping[str, Interval], symbols: dict[str, Interval]) -> _Shaped:
    needed = symbols_of(buffer.shape)
    every = ChainMap({symbol: ranges[symbol] for symbol in needed}, symbols)
    return _Shaped(needed, every, dimensions(buffer.shape, highs(ranges)))


def first_row(name: str, shape: Shape, whole: Shape, at: object, *, at_bounds: bool) -> int:
    """The first row of buffer `name` that an array of `shape` is written to: `at`, if its rows fit there.

    `whole` is the buffer's shape, `at_bounds` whether that is at its symbols' bounds. Where `at` is None, the array
    is the whole buffer. Raises WrongShape.
    """
    if at is None:
        if shape == whole:
            return 0
        help = "give an array of that shape, or use `at` to write some of its rows"
        if at_bounds and shape[1:] == whole[1:] and shape[:1] < whole[:1]:
            help = "give the symbol values of the call that reads it, or use `at` to write some of its rows"
        where = "at its symbols' bounds" if at_bounds else "at these values"
        raise WrongShape(f"buffer {name!r} has shape {list(whole)} {where}, but the array has {list(shape)}", help)
    row = as_integer(at)
    if row is None or row < 0:
        raise WrongShape(f"row {at!r} of buffer {name!r} is not valid", "give an integer of at least 0")
    if not (shape and len(shape) == len(whole) and shape[1:] == whole[1:] and row + shape[0] <= whole[0]):
        raise WrongShape(
            f"buffer {name!r} has shape {list(whole)}: an array of {list(shape)} does not fit from row {row} on",
            "give rows of the same shape, at most as many as the buffer has from that row on",
        )
    return row
