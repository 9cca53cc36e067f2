"""Call sites: the launches that correspond to each other in different passes, and the numbers that they were given.

Two passes, of one token and of five, that launch `scale` twice and `add` between:

>>> passes = [[(1, "scale", 1), (2, "add", 1), (3, "scale", 1)], [(4, "scale", 5), (5, "add", 5), (6, "scale", 5)]]
>>> sites, unaligned = align([[launch(*each) for each in one] for one in passes])
>>> [(site.kernel.symbol, site.occurrence, [launch.line for launch in site.launches]) for site in sites]
[('scale', 0, [1, 4]), ('add', 0, [2, 5]), ('scale', 1, [3, 6])]
>>> next(sites[0].given_numbers())
Number(name='grid.x', type='geometry', values=(1, 5))
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kern.mining.events import WORD, Kernel, Launch

NumberType = Literal["geometry", "u8", "i16", "i32", "f32", "i64", "f64"]
_AXES: Final = "xyz"
_INTEGERS: Final[dict[int, NumberType]] = {1: "u8", 2: "i16", 4: "i32", 8: "i64"}
_FLOATS: Final[dict[int, NumberType]] = {4: "f32", 8: "f64"}
_PACKED: Final = {"f32": ("<I", "<f"), "f64": ("<Q", "<d")}
"""How a float's bits and its value are packed."""
_FLOAT_FORM: Final = {4: (23, 8), 8: (52, 11)}
"""Bits of fraction and exponent, by bytes."""
_MAGNITUDE: Final = 40
"""A float's exponent, as a power of two, is taken to lie within this distance of 1."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number that a site's launches were given: `grid.x`, `block.y`, `shared`, or `param 3`.

    `values` has one integer for each launch; a float's is its bits.
    """

    name: str
    type: NumberType
    values: tuple[int, ...]

    @property
    def value(self) -> float | None:
        """The one value of a float, None for other numbers, and for a float with several."""
        if self.type not in _PACKED or len(set(self.values)) > 1:
            return None
        bits, real = _PACKED[self.type]
        value: float = struct.unpack(real, struct.pack(bits, self.values[0]))[0]
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A call site: launch number `occurrence` of a kernel in each of `passes`, which launch it `count` times."""

    kernel: Kernel
    occurrence: int
    count: int
    passes: tuple[int, ...]
    launches: tuple[Launch, ...]

    def pointer_offsets(self) -> tuple[tuple[int, int], ...]:
        """The parameter and the byte in it of each address, in any of the launches.

        An address of the host counts where it is the whole parameter: bytes of a struct may look like one by chance.
        """
        sizes = self.kernel.layout.sizes if self.kernel.layout else ()
        return tuple(
            sorted(
                {
                    (pointer.param, pointer.at)
                    for launch in self.launches
                    for pointer in launch.pointers
                    if pointer.on_device or (sizes and sizes[pointer.param] == WORD)
                }
            )
        )

    def given_numbers(self) -> Iterator[Number]:
        """The geometry, and every scalar parameter that is not an address."""
        for what in ("grid", "block"):
            for axis, name in enumerate(_AXES):
                values = tuple(getattr(launch, what)[axis] for launch in self.launches)
                yield Number(f"{what}.{name}", "geometry", values)
        yield Number("shared", "geometry", tuple(launch.shared for launch in self.launches))
        if any(launch.params is None for launch in self.launches):
            return
        pointers = {param for param, _ in self.pointer_offsets()}
        for param, first in enumerate(self.launches[0].params or ()):
            if param not in pointers and len(first) in _INTEGERS:
                values = tuple(launch.integer(param, signed=len(first) > 1) for launch in self.launches)
                yield _typed(param, len(first), values)


@dataclass(frozen=True, slots=True)
class Unaligned:
    """A pass that does not launch a kernel as often as the passes that it was compared with."""

    kernel: Kernel
    index: int
    count: int
    usual: int


def align(passes: Sequence[Sequence[Launch]]) -> tuple[tuple[Site, ...], tuple[Unaligned, ...]]:
    """The call sites of passes in the order of their first launches, and the passes that could not be aligned.

    A site is a kernel and the number of its launch in the pass. Only passes that launch a kernel equally often are
    compared: those of the most common count, and those of any other count that several passes have.
    """
    launched: defaultdict[tuple[str, str], dict[int, list[Launch]]] = defaultdict(dict)
    for index, launches in enumerate(passes):
        for launch in launches:
            launched[launch.kernel.key].setdefault(index, []).append(launch)
    sites: list[Site] = []
    unaligned: list[Unaligned] = []
    for by_pass in launched.values():
        counts = Counter(len(found) for found in by_pass.values())
        usual = max(counts, key=lambda count: (counts[count], count))
        for count, number in counts.items():
            group = {index: found for index, found in by_pass.items() if len(found) == count}
            if count == usual or number > 1:
                sites += _sites(group, count)
            else:
                unaligned += [Unaligned(found[0].kernel, index, count, usual) for index, found in group.items()]
    sites.sort(key=lambda site: site.launches[0].order)
    return tuple(sites), tuple(unaligned)


def _sites(group: dict[int, list[Launch]], count: int) -> Iterable[Site]:
    for occurrence, launches in enumerate(zip(*group.values(), strict=True)):
        yield Site(launches[0].kernel, occurrence, count, tuple(group), launches)


def _typed(param: int, size: int, values: tuple[int, ...]) -> Number:
    """A scalar: a float where all its bits look like one's, else an integer."""
    some = [value for value in values if value]
    if size in _FLOATS and some and all(_looks_float(value, size) for value in some):
        return Number(f"param {param}", _FLOATS[size], tuple(value % 2 ** (8 * size) for value in values))
    return Number(f"param {param}", _INTEGERS[size], values)


def _looks_float(value: int, size: int) -> bool:
    """Whether bits are those of a float near enough to 1; integers of that size are too large to be counts."""
    fraction, exponent = _FLOAT_FORM[size]
    biased = (value >> fraction) & ((1 << exponent) - 1)
    return abs(biased - ((1 << (exponent - 1)) - 1)) <= _MAGNITUDE
