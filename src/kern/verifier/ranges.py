"""The values of a symbol: in a program, in a kernel, in the shape of a buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kern.manifest.expressions import Interval
from kern.manifest.references import Usage
from kern.manifest.types import Manifest, Program, Symbol

SymbolRanges = Mapping[str, Interval]

_Exceptions = Mapping[str, Interval | None]
"""The symbols whose range is not the global one; None for those without a range."""


class _Narrowed(Mapping[str, Interval]):
    """The global ranges as one or several programs narrow them.

    A manifest may have as many programs as symbols, so no program gets a table of all symbols: each keeps what it
    narrows, and the range over several is computed when it is needed.
    """

    def __init__(self, whole: SymbolRanges, programs: tuple[_Exceptions, ...]) -> None:
        self._whole = whole
        self._programs = programs
        self._known: dict[str, Interval | None] = {}

    def __getitem__(self, name: str) -> Interval:
        if name not in self._known:
            self._known[name] = self._over(name)
        found = self._known[name]
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._whole if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _over(self, name: str) -> Interval | None:
        """Least of the minima and greatest of the maxima; None where one of the programs has no range."""
        whole = self._whole[name]
        found = [own.get(name, whole) for own in self._programs]
        known = [interval for interval in found if interval is not None]
        if len(known) < len(found):
            return None
        return min(low for low, _ in known), max(high for _, high in known)


@dataclass(frozen=True, slots=True)
class Ranges:
    """Inclusive symbol bounds by where they hold.

    `symbols` are the global ones. A program may narrow them. A kernel's hold over all programs that dispatch
    it, a buffer's over all programs that use it (least of the minima, greatest of the maxima), and are the
    global ones where there is no such program. Symbols whose own bounds are wrong have no range; in a
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
        own = {name: _exceptions(program, whole) for name, program in manifest.programs.items()}
        unions: dict[tuple[str, ...], SymbolRanges] = {(): whole}

        def over(*users: str) -> SymbolRanges:
            if users not in unions:
                narrowing = tuple(own[user] for user in users)
                unions[users] = _Narrowed(whole, narrowing) if any(narrowing) else whole
            return unions[users]

        return cls(
            whole,
            {name: over(name) for name in manifest.programs},
            {name: over(*usage.kernels.get(name, ())) for name in manifest.kernels},
            {name: over(*usage.buffers.get(name, ())) for name in manifest.buffers},
        )


def _exceptions(program: Program, whole: SymbolRanges) -> _Exceptions:
    """The symbols that have a range and that one program narrows."""
    narrowed: dict[str, Interval | None] = {}
    for name, bounds in program.symbols.items():
        if name not in whole:
            continue
        least, greatest = whole[name]
        low = least if bounds.min is None else bounds.min
        high = greatest if bounds.max is None else bounds.max
        narrowed[name] = (low, high) if least <= low <= high <= greatest else None
    return narrowed


def _sound(symbol: Symbol) -> bool:
    return 0 <= symbol.min <= symbol.max and symbol.max > 0
