"""Rule 2: the version, and the bounds of symbols, global and inside a program."""

from __future__ import annotations

from collections.abc import Iterator

from kern.manifest.diagnostics import Code, Diagnostic, Path
from kern.manifest.expressions import Expr
from kern.manifest.reading import other_version
from kern.manifest.types import Program
from kern.verifier.example import edit
from kern.verifier.expressions import symbols_from_zero
from kern.verifier.ranges import SymbolRanges
from kern.verifier.scope import Scope

BOUNDS_CROSSED = Code(
    "K0202",
    "upper bound below the lower bound",
    "The bounds of a symbol are inclusive, so `max` must be at least `min`; otherwise no value is allowed. The default "
    "of `min` is 1; inside a program it is the global one.",
    edit("/symbols/rows", '{"min": 8, "max": 4}', '{"min": 1, "max": 64}'),
)
MAX_ZERO = Code(
    "K0203",
    "symbol that is never positive",
    "`max` is at least 1. If a symbol could only be 0, write the literal 0 instead.",
    edit("/symbols/start/max", "0", "1"),
)
MIN_NEGATIVE = Code(
    "K0204",
    "negative lower bound",
    "Symbols are counts or indices, so `min` is 0 or more. Pass a negative number to a kernel as a literal.",
    edit("/symbols/start/min", "-1", "0"),
)
ZERO_IN_SIZE = Code(
    "K0205",
    "size depends on a symbol that can be 0",
    "A symbol that can be 0 may be passed as a scalar argument, but not be used in a shape or a grid: devices reject "
    "empty arrays and empty launches, or silently do nothing. Raise its `min` to 1, or use another symbol.",
    edit("/kernels/scale/impl/steps/0/grid/1", '{"sym": "start"}', '{"sym": "rows"}'),
)
PROGRAM_BOUNDS_OUTSIDE = Code(
    "K0206",
    "program bounds outside the global ones",
    "A program may narrow the bounds of a symbol, not widen them. Keep the program's bound inside the global ones, or "
    "widen those.",
    edit("/programs/step/symbols", '{"rows": {"max": 65}}', '{"rows": {"max": 8}}'),
)
PROGRAM_BOUNDS_UNKNOWN = Code(
    "K0207",
    "program bounds for an unknown symbol",
    "A program may narrow only symbols declared in `symbols`. With a misspelt name the intended symbol would keep its "
    "global bounds.",
    edit("/programs/step/symbols", '{"row": {"max": 1}}', '{"rows": {"max": 1}}'),
)


def check(scope: Scope) -> Iterator[Diagnostic]:
    """Everything of rule 2."""
    if (other := other_version(scope.manifest.meta.version)) is not None:
        yield other
    yield from _global_bounds(scope)
    for name, program in scope.manifest.programs.items():
        yield from _program_bounds(scope, name, program)
    yield from _sizes(scope)


def _global_bounds(scope: Scope) -> Iterator[Diagnostic]:
    for name, symbol in scope.manifest.symbols.items():
        path = ("symbols", name)
        if symbol.max < 1:
            yield MAX_ZERO.at((*path, "max"), f"`{name}` is at most {symbol.max}", "set `max` to 1 or more")
        elif symbol.max < symbol.min:
            message = f"`{name}` is at least {symbol.min} and at most {symbol.max}"
            yield BOUNDS_CROSSED.at((*path, "max"), message, f"set `max` to {symbol.min} or more, or lower `min`")
        if symbol.min < 0:
            yield MIN_NEGATIVE.at((*path, "min"), f"`{name}` can be {symbol.min}", "set `min` to 0 or more")


def _program_bounds(scope: Scope, name: str, program: Program) -> Iterator[Diagnostic]:
    for symbol, bounds in program.symbols.items():
        path: Path = ("programs", name, "symbols", symbol)
        if symbol not in scope.manifest.symbols:
            message, hint = f"unknown symbol `{symbol}`", scope.names["symbol"].hint(symbol)
            yield PROGRAM_BOUNDS_UNKNOWN.at(path, message, hint, anchor="key")
            continue
        if symbol not in scope.ranges.symbols:
            continue
        least, greatest = scope.ranges.symbols[symbol]
        given = [("min", bounds.min), ("max", bounds.max)]
        outside = [(key, v) for key, v in given if v is not None and not least <= v <= greatest]
        for key, value in outside:
            message = f"{key} {value} is outside the global bounds of `{symbol}`, {least} … {greatest}"
            yield PROGRAM_BOUNDS_OUTSIDE.at((*path, key), message, "narrow it, or widen the global bounds")
        if not outside and symbol not in scope.ranges.programs[name]:
            low = least if bounds.min is None else bounds.min
            high = greatest if bounds.max is None else bounds.max
            message = f"`{symbol}` is at least {low} and at most {high} in this program"
            yield BOUNDS_CROSSED.at(path, message, "set `max` to `min` or more")


def _sizes(scope: Scope) -> Iterator[Diagnostic]:
    manifest, ranges = scope.manifest, scope.ranges
    for name, buffer in manifest.buffers.items():
        if buffer.class_ != "weight":
            yield from _from_zero(buffer.shape, ranges.buffers[name], ("buffers", name, "shape"))
    for name, kernel in manifest.kernels.items():
        path: Path = ("kernels", name, "impl")
        for key, scratch in kernel.impl.scratch.items():
            yield from _from_zero(scratch.shape, ranges.kernels[name], (*path, "scratch", key, "shape"))
        for index, step in enumerate(kernel.impl.steps):
            if step.operator is None:
                yield from _from_zero(step.grid, ranges.kernels[name], (*path, "steps", index, "grid"))


def _from_zero(sizes: tuple[Expr, ...], ranges: SymbolRanges, path: Path) -> Iterator[Diagnostic]:
    for index, size in enumerate(sizes):
        for name in symbols_from_zero(size, ranges):
            yield ZERO_IN_SIZE.at(
                (*path, index), f"`{name}` can be 0 here", f"raise the `min` of `{name}`, or use another symbol"
            )


CODES = (
    BOUNDS_CROSSED, MAX_ZERO, MIN_NEGATIVE, ZERO_IN_SIZE,
    PROGRAM_BOUNDS_OUTSIDE, PROGRAM_BOUNDS_UNKNOWN,
)  # fmt: skip
