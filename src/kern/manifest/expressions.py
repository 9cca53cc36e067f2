"""The closed set of scalar expressions: their wire form, exact values and interval bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic_core import core_schema

INT_LIMIT = 2**63


class Wire(BaseModel):
    """A JSON object of the manifest: frozen, without conversions or unknown fields."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)


Int: TypeAlias = Annotated[int, Field(ge=-INT_LIMIT, lt=INT_LIMIT)]
Name: TypeAlias = Annotated[str, Field(min_length=1)]


class NotNull:
    """On an optional field: it may be left out, but not be null."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        nullable: core_schema.NullableSchema = handler(source)
        return nullable["schema"]


class Symbolic(Wire):
    """An expression that is not a constant; `+`, `*` and `over` build larger ones."""

    def __add__(self, other: Expr) -> Add:
        return Add(add=(cast("Expr", self), other))

    def __mul__(self, factor: int) -> Mul:
        return Mul(mul=(cast("Expr", self), factor))

    def over(self, divisor: int) -> CeilDiv:
        """This divided by `divisor`, rounded up."""
        return CeilDiv(ceil_div=(cast("Expr", self), divisor))


class Sym(Symbolic):
    """The value of a symbol."""

    sym: Name


class CeilDiv(Symbolic):
    """First over second, rounded up."""

    ceil_div: tuple[Expr, Int]


class Mul(Symbolic):
    """First times second."""

    mul: tuple[Expr, Int]


class Add(Symbolic):
    """First plus second."""

    add: tuple[Expr, Expr]


class _BareName:
    """Reads a bare string as a symbol."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(
            lambda name: Sym(sym=name), core_schema.str_schema(strict=True, min_length=1)
        )


TAG = "\x00"
"""Marks the union tags that pydantic puts into the location of an error, so that they can be removed."""

_FORMS = {"sym": Sym, "ceil_div": CeilDiv, "mul": Mul, "add": Add}


def _form(value: Any) -> str:
    if isinstance(value, str):
        return TAG + "name"
    if isinstance(value, dict):
        return next((TAG + form for form in _FORMS if form in value), TAG + "unknown")
    return next((TAG + form for form, kind in _FORMS.items() if isinstance(value, kind)), TAG + "int")


Expr: TypeAlias = Annotated[
    Annotated[Int, Tag(TAG + "int")]
    | Annotated[Sym, _BareName, Tag(TAG + "name")]
    | Annotated[Sym, Tag(TAG + "sym")]
    | Annotated[CeilDiv, Tag(TAG + "ceil_div")]
    | Annotated[Mul, Tag(TAG + "mul")]
    | Annotated[Add, Tag(TAG + "add")],
    Discriminator(_form),
]


Interval: TypeAlias = tuple[int, int]
"""Least and greatest value, both included."""


def evaluate(expr: Expr, values: Mapping[str, int]) -> int:
    """The exact value of `expr`. Raises KeyError for a symbol without a value."""
    match expr:
        case int():
            return expr
        case Sym():
            return values[expr.sym]
        case CeilDiv():
            over, by = expr.ceil_div
            return -(-evaluate(over, values) // by)
        case Mul():
            left, factor = expr.mul
            return evaluate(left, values) * factor
        case Add():
            first, second = expr.add
            return evaluate(first, values) + evaluate(second, values)


def bounds(expr: Expr, ranges: Mapping[str, Interval]) -> Interval:
    """The exact bounds of `expr` over independent symbol ranges.

    Every form grows with its operands (factors and divisors are at least 1), so the extremes of the
    operands give the extremes of the whole. Raises KeyError for a symbol without a range.
    """
    match expr:
        case int():
            return expr, expr
        case Sym():
            return ranges[expr.sym]
        case CeilDiv():
            low, high = bounds(expr.ceil_div[0], ranges)
            by = expr.ceil_div[1]
            return -(-low // by), -(-high // by)
        case Mul():
            low, high = bounds(expr.mul[0], ranges)
            return low * expr.mul[1], high * expr.mul[1]
        case Add():
            first, second = bounds(expr.add[0], ranges), bounds(expr.add[1], ranges)
            return first[0] + second[0], first[1] + second[1]


def symbols(expr: Expr) -> Iterator[str]:
    """The names of the symbols in `expr`, in order, repeats included."""
    match expr:
        case int():
            return
        case Sym():
            yield expr.sym
        case CeilDiv():
            yield from symbols(expr.ceil_div[0])
        case Mul():
            yield from symbols(expr.mul[0])
        case Add():
            yield from symbols(expr.add[0])
            yield from symbols(expr.add[1])


def show(expr: Expr) -> str:
    """`expr` as people write it: `ceil(tokens * 32 / 4)`."""
    match expr:
        case int():
            return str(expr)
        case Sym():
            return expr.sym
        case CeilDiv():
            return f"ceil({_operand(expr.ceil_div[0])} / {expr.ceil_div[1]})"
        case Mul():
            return f"{_operand(expr.mul[0])} * {expr.mul[1]}"
        case Add():
            first, second = expr.add
            if isinstance(second, int) and second < 0:
                return f"{show(first)} - {-second}"
            return f"{show(first)} + {show(second)}"


def _operand(expr: Expr) -> str:
    return f"({show(expr)})" if isinstance(expr, Add) else show(expr)
