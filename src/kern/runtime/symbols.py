"""The symbol values of a call: which a program needs, and whether those given are allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from kern.manifest.errors import KernError
from kern.manifest.expressions import Expr, Interval, Sym, symbols
from kern.manifest.types import BufferArg, ExprArg, Manifest

Values = Mapping[str, int]
"""A value for each symbol."""


class SymbolError(KernError):
    """A call's symbol values are not what the program takes."""

    code: ClassVar[str] = "symbol"
    exit_code: ClassVar[int] = 2


class SymbolMissing(SymbolError):
    """A symbol that the program names has no value."""

    code: ClassVar[str] = "symbol-missing"


class SymbolUnknown(SymbolError):
    """A value for a symbol that the manifest does not declare."""

    code: ClassVar[str] = "symbol-unknown"


class SymbolOutOfBounds(SymbolError):
    """A value outside the symbol's bounds in this program."""

    code: ClassVar[str] = "symbol-out-of-bounds"


def program_symbols(manifest: Manifest, program: str) -> frozenset[str]:
    """The symbols that a call of `program` must give: all that its expressions and buffers name."""
    return symbols_of(_expressions(manifest, program))


def symbols_of(expressions: Iterable[Expr]) -> frozenset[str]:
    """The symbols that any of the expressions names."""
    return frozenset(name for expr in expressions for name in symbols(expr))


def checked(needed: frozenset[str], ranges: Mapping[str, Interval], values: Values, where: str) -> dict[str, int]:
    """The values of the `needed` symbols, every value given having been checked against `ranges`.

    A declared symbol that is not needed may be given: it is checked and left out. Raises SymbolMissing,
    SymbolUnknown or SymbolOutOfBounds; `where` names the call in the message.
    """
    for name, value in values.items():
        if name not in ranges:
            raise SymbolUnknown(f"{where}: no symbol {name!r}", _known(ranges))
        low, high = ranges[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise SymbolOutOfBounds(f"{where}: {name} is {value!r}", f"give an integer in {low}…{high}")
        if not low <= value <= high:
            raise SymbolOutOfBounds(f"{where}: {name} is {value}", f"give a value in {low}…{high}")
    missing = sorted(needed - values.keys())
    if missing:
        raise SymbolMissing(f"{where}: no value for {', '.join(missing)}", "give every symbol that it names")
    return {name: values[name] for name in sorted(needed)}


def _known(ranges: Mapping[str, Interval]) -> str:
    return f"the symbols are {', '.join(ranges)}" if ranges else "the manifest declares no symbols"


def _expressions(manifest: Manifest, program: str) -> Iterator[Expr]:
    dispatches = manifest.programs[program].dispatches
    for kernel in {dispatch.kernel: None for dispatch in dispatches}:
        impl = manifest.kernels[kernel].impl
        for scratch in impl.scratch.values():
            yield from scratch.shape
        for step in impl.steps:
            yield from step.grid
            yield step.shared_mem
    for arg in (arg for dispatch in dispatches for arg in dispatch.args):
        if isinstance(arg, BufferArg):
            yield from manifest.buffers[arg.buf].shape
        elif isinstance(arg, Sym):
            yield arg
        elif isinstance(arg, ExprArg):
            yield arg.expr
