"""Expressions under ranges that may be incomplete: bounds, and the errors in them."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from typing import cast

from kern.manifest.diagnostics import Path
from kern.manifest.expressions import Add, CeilDiv, Expr, Interval, Mul, Sym, symbols

ExpressionError = tuple[Path, str | int]
"""The location, and the unknown symbol or the factor."""


def interval(expr: Expr, ranges: Mapping[str, Interval]) -> Interval | None:
    """The exact bounds of `expr`, None if a symbol has no range or a factor is below 1.

    A None is never reported: another rule has reported its cause.
    """
    # `type … is`: an isinstance that fails is slow for pydantic classes, and this runs for every expression.
    if type(expr) is Sym:
        return ranges.get(expr.sym)
    if isinstance(expr, int):
        return expr, expr
    if type(expr) is Add:
        first, second = interval(expr.add[0], ranges), interval(expr.add[1], ranges)
        return None if first is None or second is None else (first[0] + second[0], first[1] + second[1])
    inner, number = expr.mul if type(expr) is Mul else cast("CeilDiv", expr).ceil_div
    bounds = interval(inner, ranges)
    if bounds is None or number < 1:
        return None
    low, high = bounds
    return (low * number, high * number) if type(expr) is Mul else (-(-low // number), -(-high // number))


def errors(expr: Expr, path: Path, known: Container[str]) -> Iterator[ExpressionError]:
    """Unknown symbols, and factors or divisors below 1, each with its location."""
    if type(expr) is Sym:
        if expr.sym not in known:
            yield path, expr.sym
    elif isinstance(expr, int):
        return
    elif type(expr) is Add:
        for index, part in enumerate(expr.add):
            yield from errors(part, (*path, "add", index), known)
    else:
        form = "mul" if type(expr) is Mul else "ceil_div"
        inner, number = expr.mul if type(expr) is Mul else cast("CeilDiv", expr).ceil_div
        yield from errors(inner, (*path, form, 0), known)
        if number < 1:
            yield (*path, form, 1), number


def symbols_from_zero(expr: Expr, ranges: Mapping[str, Interval]) -> list[str]:
    """The symbols in `expr` that can be 0, each once."""
    return [name for name in dict.fromkeys(symbols(expr)) if name in ranges and ranges[name][0] < 1]


def divisor(expr: Expr, ranges: Mapping[str, Interval]) -> int:
    """A number that divides `expr` at every value: the greatest that its form shows."""
    bounds = interval(expr, ranges)
    if bounds is not None and bounds[0] == bounds[1]:
        return abs(bounds[0])
    match expr:
        case Mul():
            return divisor(expr.mul[0], ranges) * expr.mul[1]
        case Add():
            return math.gcd(divisor(expr.add[0], ranges), divisor(expr.add[1], ranges))
        case CeilDiv():
            inner, by = divisor(expr.ceil_div[0], ranges), expr.ceil_div[1]
            return inner // by if inner % by == 0 else 1
        case _:
            return 1
