"""What is known of each call site: its numbers as expressions, and its pointers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kern.mining.call_sites import Number, Site
from kern.mining.events import Kernel, Launch
from kern.mining.expression_fit import Fit
from kern.mining.passes import Pass
from kern.mining.pointers import PointerUse, classify
from kern.mining.token_count import fit_number

_FLOATS: Final = {"f32": ("<I", "<f"), "f64": ("<Q", "<d")}
"""How a float's bits and its value are packed."""


@dataclass(frozen=True, slots=True)
class FittedNumber:
    """A number of a call site, and the expression in tokens that gives it."""

    number: Number
    fit: Fit

    @property
    def name(self) -> str:
        """`grid.x`, `block.y`, `shared`, or `param 3`."""
        return self.number.name

    @property
    def value(self) -> float | None:
        """The one value of a float, None for other numbers, and for a float with several."""
        if self.number.type not in _FLOATS or len(set(self.number.values)) > 1:
            return None
        bits, real = _FLOATS[self.number.type]
        value: float = struct.unpack(real, struct.pack(bits, self.number.values[0]))[0]
        return value


@dataclass(frozen=True, slots=True)
class CallSite:
    """Launch number `occurrence` of a kernel, in each of `passes`, which launch it `count` times."""

    site: Site
    numbers: tuple[FittedNumber, ...]
    pointers: tuple[PointerUse, ...]

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self.site.kernel

    @property
    def occurrence(self) -> int:
        """Which of the kernel's launches in a pass it is, from 0."""
        return self.site.occurrence

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Its launches, one in each of its passes."""
        return self.site.launches

    @property
    def passes(self) -> tuple[int, ...]:
        """The indices of its passes."""
        return self.site.passes


def examine(sites: Sequence[Site], passes: Sequence[Pass]) -> tuple[CallSite, ...]:
    """The call sites of passes with their token counts."""
    tokens = [each.tokens for each in passes]
    pointers = classify(sites, passes)
    return tuple(
        CallSite(
            site,
            tuple(FittedNumber(number, fit_number(number, site.passes, tokens)) for number in site.numbers()),
            pointers[site],
        )
        for site in sites
    )
