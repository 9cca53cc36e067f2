"""Rule 7, scalars: whether symbols, expressions and literals fit the scalar type they are passed to."""

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
    "value that may not fit its scalar",
    "A symbol or expression must fit the scalar type at every value that the program allows, or it would wrap around "
    "unseen. Narrow the symbol's bounds, or let the kernel take a wider type.",
    edit(f"{_RECORD}/args/3/expr", '{"mul": [{"sym": "rows"}, 67108864]}', '{"mul": [{"sym": "rows"}, 67108863]}'),
)
SYMBOL_TO_F32 = Code(
    "K0710",
    "symbol for an f32",
    "Symbols and expressions are integers, and f32 holds not every integer. A number that a kernel takes as f32 is a "
    "literal; one that depends on the call is an integer parameter that the kernel converts.",
    edit(f"{_SCALE}/args/2", '{"sym": "rows"}', '{"f32": 64.0}'),
)
LITERAL_TYPE = Code(
    "K0711",
    "dispatch literal of another type",
    "A literal is written with the type of the parameter it is for, and nothing is converted. So what is written is "
    "what the kernel gets, bit for bit.",
    edit(f"{_RECORD}/args/3", '{"i32": 128}', '{"u32": 128}'),
)
LITERAL_RANGE = Code(
    "K0712",
    "dispatch literal out of range",
    "A literal's value is one that its type can hold; an f32 stays finite when rounded to single precision. Any other "
    "would wrap around or become infinite unseen.",
    edit(f"{_SCALE}/args/2", '{"f32": 1e39}', '{"f32": 1e38}'),
)
FACTOR = Code(
    "K0717",
    "factor or divisor below 1 in an argument",
    "The number in `mul` and `ceil_div` is at least 1. So every expression grows with its symbols, and its bounds are "
    "its values at theirs.",
    edit(f"{_RECORD}/args/3/expr/mul/1", "-128", "128"),
)


def computed(expr: Expr, scalar: Scalar, ranges: SymbolRanges, path: Path) -> Diagnostic | None:
    """The error in a symbol or expression for a scalar, at the program's bounds."""
    if scalar == "f32":
        return SYMBOL_TO_F32.at(path, f"`{show(expr)}` for an f32", "give an f32 literal")
    bounds, (low, high) = interval(expr, ranges), SCALAR_RANGE[scalar]
    if bounds is None or low <= bounds[0] <= bounds[1] <= high:
        return None
    message = f"`{show(expr)}` is {number(bounds[0])} … {number(bounds[1])}, and {scalar} holds {range_of(scalar)}"
    return DOES_NOT_FIT.at(path, message, "narrow a symbol's bounds, or take a wider type")


def literal(arg: Literals, scalar: Scalar, path: Path, mistyped: Code, outside: Code) -> Diagnostic | None:
    """The error in a literal for a scalar, under the codes of a wrong type and of a value out of range."""
    if arg.scalar != scalar:
        return mistyped.at(path, f"a literal {arg.scalar} for `{scalar}`", f"write it as {scalar}")
    if literal_fits(arg):
        return None
    message = f"{arg.value} is out of range for {arg.scalar}"
    return outside.at((*path, arg.scalar), message, f"{arg.scalar} holds {range_of(arg.scalar)}")


def literal_fits(literal: Literals) -> bool:
    """Whether a literal's value is one of its type; an f32 must stay finite when rounded to single precision."""
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
