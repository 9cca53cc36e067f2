"""Rule 4: the shapes of buffers, and of scratch, which is an array like them."""

from __future__ import annotations

from collections.abc import Iterator

from kern.manifest.counts import number
from kern.manifest.diagnostics import Code, Diagnostic, Path
from kern.manifest.expressions import INT_LIMIT, Expr, show, symbols
from kern.manifest.types import Buffer, Scratch
from kern.verifier.example import edit
from kern.verifier.expressions import interval, symbols_from_zero
from kern.verifier.ranges import SymbolRanges
from kern.verifier.scope import Scope

SHAPE_EMPTY = Code(
    "K0401",
    "empty shape",
    "A shape has at least one dimension. A single value is an array of shape [1].",
    edit("/buffers/peak/shape", "[]", "[1]"),
)
DIMENSION_ZERO = Code(
    "K0402",
    "dimension below 1",
    "Every dimension is positive at every value of its symbols: an array without elements has no address to pass to a "
    "kernel. Write at least 1, and make sure that adding a negative number leaves at least 1.",
    edit("/buffers/total/shape", "[128, 0]", "[128, 1]"),
)
SHAPE_SYMBOL_UNKNOWN = Code(
    "K0403",
    "unknown symbol in a shape",
    "A name in a shape is a symbol declared in `symbols`; its bounds give the size of the array. Declare the symbol, "
    "or fix its name.",
    edit("/buffers/mixed/shape", '["row", 128]', '["rows", 128]'),
)
WEIGHT_SYMBOL = Code(
    "K0404",
    "symbol in a weight's shape",
    "A weight is bound to a tensor in the weights file, whose shape does not depend on a call. Write numbers.",
    edit("/buffers/filter/shape", '["rows", 64]', "[128, 64]"),
)
ARRAY_TOO_LARGE = Code(
    "K0405",
    "array too large",
    "When a manifest is loaded, an array is allocated at the upper bounds of its symbols, and byte counts have at most "
    "63 bits. Usually a bound or a dimension has too many digits.",
    edit("/buffers/total/shape", "[4611686018427387904]", "[128]"),
)
SHAPE_FACTOR = Code(
    "K0406",
    "factor or divisor below 1 in a shape",
    "The number in `mul` and `ceil_div` is at least 1. Every expression then increases with its symbols, and its "
    "bounds are its values at their bounds.",
    edit("/buffers/mixed/shape", '["rows", {"mul": [128, 0]}]', '["rows", {"mul": [128, 1]}]'),
)


def check(scope: Scope) -> Iterator[Diagnostic]:
    """Everything of rule 4."""
    for name, buffer in scope.manifest.buffers.items():
        size = scope.buffer_bytes[name]
        yield from _array(scope, buffer, scope.ranges.buffers[name], size, ("buffers", name))
    for name, kernel in scope.manifest.kernels.items():
        for key, scratch in kernel.impl.scratch.items():
            size = scope.scratch_bytes[name][key]
            path = ("kernels", name, "impl", "scratch", key)
            yield from _array(scope, scratch, scope.ranges.kernels[name], size, path)


def _array(
    scope: Scope, array: Buffer | Scratch, ranges: SymbolRanges, size: int | None, path: Path
) -> Iterator[Diagnostic]:
    path = (*path, "shape")
    if not array.shape:
        yield SHAPE_EMPTY.at(path, "the shape has no dimension", "write [1] for a single value")
    weight = isinstance(array, Buffer) and array.class_ == "weight"
    for index, dimension in enumerate(array.shape):
        yield from _dimension(scope, dimension, ranges, weight, (*path, index))
    if size is not None and size >= INT_LIMIT:
        message = f"{number(size)} bytes at the upper bounds; the limit is 2^63 - 1"
        yield ARRAY_TOO_LARGE.at(path, message, "lower a bound or a dimension")


def _dimension(scope: Scope, dimension: Expr, ranges: SymbolRanges, weight: bool, path: Path) -> Iterator[Diagnostic]:
    if weight and (name := next(symbols(dimension), None)) is not None:
        message = f"a weight's shape depends on `{name}`"
        yield WEIGHT_SYMBOL.at(path, message, "write the tensor's own dimensions as numbers")
        return
    yield from scope.expression_errors(dimension, path, SHAPE_SYMBOL_UNKNOWN, SHAPE_FACTOR)
    bounds = interval(dimension, ranges)
    if bounds is not None and bounds[0] < 1 and not symbols_from_zero(dimension, ranges):
        message = f"the dimension {show(dimension)} can be {number(bounds[0])}"
        yield DIMENSION_ZERO.at(path, message, "make it 1 or more")


CODES = (SHAPE_EMPTY, DIMENSION_ZERO, SHAPE_SYMBOL_UNKNOWN, WEIGHT_SYMBOL, ARRAY_TOO_LARGE, SHAPE_FACTOR)
