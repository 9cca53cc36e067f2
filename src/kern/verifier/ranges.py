"""Which values a symbol can take: in a program, in a kernel, in a buffer's shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kern.manifest.expressions import Interval
from kern.manifest.types import Manifest, Program, Symbol
from kern.verifier.usage import Usage

SymbolRanges = Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Inclusive symbol bounds by where they hold.

    `symbols` are the global ones. A program may narrow them. A kernel's hold over all programs that dispatch
    it, a buffer's over all programs that use it (least of the minima, greatest of the maxima), and are the
    global ones where there is no such program. Symbols whose own bounds are at fault have no range: in a
    verified manifest every symbol has one everywhere.
    """

    symbols: SymbolRanges
    programs: Mapping[str, SymbolRanges]
    kernels: Mapping[str, SymbolRanges]
    buffers: Mapping[str, SymbolRanges]

    @classmethod
    def of(cls, manifest: Manifest, usage: Usage) -> Ranges:
        """The ranges of `manifest`, which is used as `usage` says."""
        whole = {name: (symbol.min, symbol.max) for name, symbol in manifest.symbols.items() if _sound(symbol)}
        programs = {name: program_ranges(program, whole) for name, program in manifest.programs.items()}
        unions: dict[tuple[str, ...], SymbolRanges] = {(): whole}

        def over(users: tuple[str, ...]) -> SymbolRanges:
            if users not in unions:
                unions[users] = _union([programs[user] for user in users])
            return unions[users]

        return cls(
            whole,
            programs,
            {name: over(usage.kernels.get(name, ())) for name in manifest.kernels},
            {name: over(usage.buffers.get(name, ())) for name in manifest.buffers},
        )


def program_ranges(program: Program, whole: SymbolRanges) -> SymbolRanges:
    """The global ranges as one program narrows them."""
    if not program.symbols:
        return whole
    narrowed = dict(whole)
    for name, bounds in program.symbols.items():
        if name not in whole:
            continue
        least, greatest = whole[name]
        low = least if bounds.min is None else bounds.min
        high = greatest if bounds.max is None else bounds.max
        if least <= low <= high <= greatest:
            narrowed[name] = (low, high)
        else:
            del narrowed[name]
    return narrowed


def _sound(symbol: Symbol) -> bool:
    return 0 <= symbol.min <= symbol.max and symbol.max > 0


def _union(ranges: Iterable[SymbolRanges]) -> SymbolRanges:
    first, *others = ranges
    return {
        name: (
            min(low, *(other[name][0] for other in others)),
            max(high, *(other[name][1] for other in others)),
        )
        if others
        else (low, high)
        for name, (low, high) in first.items()
        if all(name in other for other in others)
    }
