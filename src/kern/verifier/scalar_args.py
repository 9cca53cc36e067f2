"""Rule 7, scalars: whether symbols, expressions and literals fit the scalar type they are passed to."""

from __future__ import annotations

from kern.manifest.counts import number
from kern.manifest.diagnostics import Code
from kern.manifest.expressions import Expr, show
from kern.manifest.params import SCALAR_RANGE, Scalar
from kern.manifest.types import Literals
from kern.verifier.example import edit
from kern.verifier.expressions import interval
from kern.verifier.found import Found
from kern.verifier.ranges import SymbolRanges
from kern.verifier.scalars import literal_fits, range_of

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


def computed(expr: Expr, scalar: Scalar, ranges: SymbolRanges) -> Found | None:
    """What is wrong with a symbol or expression for a scalar, at the program's bounds."""
    if scalar == "f32":
        return Found(SYMBOL_TO_F32, (), f"`{show(expr)}` for an f32", "give an f32 literal")
    bounds, (low, high) = interval(expr, ranges), SCALAR_RANGE[scalar]
    if bounds is None or low <= bounds[0] <= bounds[1] <= high:
        return None
    message = f"`{show(expr)}` is {number(bounds[0])} … {number(bounds[1])}, and {scalar} holds {range_of(scalar)}"
    return Found(DOES_NOT_FIT, (), message, "narrow a symbol's bounds, or take a wider type")


def literal(arg: Literals, scalar: Scalar) -> Found | None:
    """What is wrong with a literal for a scalar."""
    if arg.scalar != scalar:
        return Found(LITERAL_TYPE, (), f"a literal {arg.scalar} for `{scalar}`", f"write it as {scalar}")
    if literal_fits(arg):
        return None
    message = f"{arg.value} is out of range for {arg.scalar}"
    return Found(LITERAL_RANGE, (arg.scalar,), message, f"{arg.scalar} holds {range_of(arg.scalar)}")


CODES = (DOES_NOT_FIT, SYMBOL_TO_F32, LITERAL_TYPE, LITERAL_RANGE, FACTOR)
