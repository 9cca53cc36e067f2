"""Rule 7, scalars: symbols, expressions and literals against the scalar types that they are passed as."""

from __future__ import annotations

import struct

from kern.manifest.counts import number
from kern.manifest.diagnostics import Code, Diagnostic, Path
from kern.manifest.expressions import Expr, show
from kern.manifest.params import F32_MAX, SCALAR_RANGE, Scalar
from kern.manifest.types import Literals
from kern.verifier.example import edit
from kern.verifier.expressions import interval
from kern.verifier.ranges import SymbolRanges

_SCALE = "/programs/fill/dispatches/1"
_RECORD = "/programs/fill/dispatches/2"

DOES_NOT_FIT = Code(
    "K0709",
    "value may not fit its scalar",
    "A symbol or expression must fit the scalar type at every value that the program allows, or it could silently wrap "
    "around. Narrow the symbol's bounds, or use a wider type in the kernel.",
    edit(f"{_RECORD}/args/3/expr", '{"mul": [{"sym": "rows"}, 67108864]}', '{"mul": [{"sym": "rows"}, 67108863]}'),
)
SYMBOL_TO_F32 = Code(
    "K0710",
    "symbol passed as f32",
    "Symbols and expressions are integers, and f32 cannot represent every integer. Pass an f32 as a literal; pass a "
    "number that depends on the call as an integer, and convert it in the kernel.",
    edit(f"{_SCALE}/args/2", '{"sym": "rows"}', '{"f32": 64.0}'),
)
LITERAL_TYPE = Code(
    "K0711",
    "dispatch literal of the wrong type",
    "A literal has the type of its parameter. Nothing is converted: the kernel gets exactly what is written.",
    edit(f"{_RECORD}/args/3", '{"i32": 128}', '{"u32": 128}'),
)
LITERAL_RANGE = Code(
    "K0712",
    "dispatch literal out of range",
    "A literal fits its type; an f32 stays finite when rounded to single precision. Other values would silently wrap "
    "around or become infinite.",
    edit(f"{_SCALE}/args/2", '{"f32": 1e39}', '{"f32": 1e38}'),
)
FACTOR = Code(
    "K0717",
    "factor or divisor below 1 in an argument",
    "The number in `mul` and `ceil_div` is at least 1. Every expression then increases with its symbols, and its "
    "bounds are its values at their bounds.",
    edit(f"{_RECORD}/args/3/expr/mul/1", "-128", "128"),
)


def computed(expr: Expr, scalar: Scalar, ranges: SymbolRanges, path: Path) -> Diagnostic | None:
    """The error in a symbol or expression for a scalar, at the program's bounds."""
    if scalar == "f32":
        return SYMBOL_TO_F32.at(path, f"`{show(expr)}` for an f32", "give an f32 literal")
    bounds, (low, high) = interval(expr, ranges), SCALAR_RANGE[scalar]
    if bounds is None or low <= bounds[0] <= bounds[1] <= high:
        return None
    message = f"`{show(expr)}` is {number(bounds[0])} … {number(bounds[1])}; {scalar} holds {range_of(scalar)}"
    return DOES_NOT_FIT.at(path, message, "narrow a symbol's bounds, or use a wider type")


def literal(arg: Literals, scalar: Scalar, path: Path, mistyped: Code, outside: Code) -> Diagnostic | None:
    """The error in a literal for a scalar, under the codes of a wrong type and of a value out of range."""
    if arg.scalar != scalar:
        return mistyped.at(path, f"a literal {arg.scalar} for `{scalar}`", f"write it as {scalar}")
    if literal_fits(arg):
        return None
    message = f"{arg.value} is out of range for {arg.scalar}"
    return outside.at((*path, arg.scalar), message, f"{arg.scalar} holds {range_of(arg.scalar)}")


def literal_fits(literal: Literals) -> bool:
    """Whether a literal fits its type; an f32 must stay finite when rounded to single precision."""
    if literal.scalar != "f32":
        low, high = SCALAR_RANGE[literal.scalar]
        return low <= literal.value <= high
    try:
        struct.pack("<f", literal.value)
    except OverflowError:
        return False
    return True


def range_of(scalar: Scalar) -> str:
    """The values of a scalar type, for people."""
    if scalar == "f32":
        return f"at most ±{F32_MAX:.7g}"
    low, high = SCALAR_RANGE[scalar]
    return f"{low} … {high}"


CODES = (DOES_NOT_FIT, SYMBOL_TO_F32, LITERAL_TYPE, LITERAL_RANGE, FACTOR)
