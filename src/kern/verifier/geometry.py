"""Rule 5, launch geometry: block, grid, shared memory, cluster, and the expressions in them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kern.manifest.counts import number
from kern.manifest.diagnostics import Code, Diagnostic, Path
from kern.manifest.expressions import Expr, show
from kern.manifest.types import Step
from kern.verifier.example import edit
from kern.verifier.expressions import divisor, interval, symbols_from_zero
from kern.verifier.ranges import SymbolRanges
from kern.verifier.scope import Scope

MAX_THREADS = 1024
MAX_BLOCK_Z = 64
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_SHARED_MEM = 232448
MAX_CLUSTER = 8

_SCALE = "/kernels/scale/impl/steps/0"
_PARTIAL = "/kernels/summarize/impl/steps/0"
_FINAL = "/kernels/summarize/impl/steps/1"

BLOCK_ZERO = Code(
    "K0503",
    "block dimension below 1",
    "Each of the three dimensions of a block is at least 1; write 1 for an unused dimension. A block without threads "
    "cannot be launched.",
    edit(f"{_SCALE}/block", "[128, 0, 1]", "[128, 1, 1]"),
)
BLOCK_TOO_LARGE = Code(
    "K0504",
    "too many threads per block",
    "A block has at most 1024 threads, the product of its three dimensions, on every CUDA device. Use a smaller block, "
    "and cover the rest by the grid or by a loop in the kernel.",
    edit(f"{_SCALE}/block", "[128, 16, 1]", "[128, 8, 1]"),
)
BLOCK_Z = Code(
    "K0505",
    "z dimension of the block too large",
    "The z dimension of a block is at most 64 on every CUDA device. Move threads to x or y.",
    edit(f"{_SCALE}/block", "[1, 1, 128]", "[128, 1, 1]"),
)
GRID_TOO_LARGE = Code(
    "K0506",
    "grid too large",
    "A CUDA grid has at most 2147483647 × 65535 × 65535 blocks. It is checked at the upper bounds of its symbols over "
    "all programs that dispatch the kernel. Move the large dimension to x, or lower a bound.",
    edit(f"{_SCALE}/grid", '[1, {"mul": [{"sym": "rows"}, 1024]}, 1]', '[{"mul": [{"sym": "rows"}, 1024]}, 1, 1]'),
)
GRID_ZERO = Code(
    "K0507",
    "grid dimension below 1",
    "Each of the three dimensions of a grid is at least 1, also at the lower bounds of its symbols; write 1 for an "
    "unused dimension. A grid without blocks cannot be launched.",
    edit(f"{_SCALE}/grid/1", "0", "1"),
)
SHARED_MEM_TOO_LARGE = Code(
    "K0508",
    "too much shared memory",
    "A block has at most 232448 bytes (227 KB) of dynamic shared memory on any device. It is checked at the upper "
    "bounds of its symbols. Lower limits of some architectures are checked against the kernel files.",
    edit(f"{_PARTIAL}/shared_mem", "232449", "232448"),
)
SHARED_MEM_NEGATIVE = Code(
    "K0509",
    "negative shared memory",
    "Shared memory is a number of bytes, 0 if a kernel needs none. Probably the expression subtracts more than the "
    "lower bound of a symbol.",
    edit(f"{_PARTIAL}/shared_mem", "-1", "0"),
)
STEP_FACTOR = Code(
    "K0515",
    "factor or divisor below 1 in a step",
    "The number in `mul` and `ceil_div` is at least 1. Every expression then increases with its symbols, and its "
    "bounds are its values at their bounds.",
    edit(f"{_SCALE}/grid/0", '{"ceil_div": [{"sym": "rows"}, 0]}', '{"ceil_div": [{"sym": "rows"}, 4]}'),
)
STEP_SYMBOL_UNKNOWN = Code(
    "K0516",
    "unknown symbol in a step",
    "Grid and shared memory are computed from symbols declared in `symbols`. Dispatch arguments have no names here.",
    edit(f"{_SCALE}/grid/0", '{"sym": "row"}', '{"sym": "rows"}'),
)
CLUSTER_SIZE = Code(
    "K0522",
    "invalid cluster size",
    "The three dimensions of a cluster are at least 1, and their product is at most 8, the portable cluster size. A "
    "manifest cannot ask for the larger, non-portable sizes.",
    edit(f"{_FINAL}/cluster", "[4, 4, 1]", "[4, 1, 1]"),
)
CLUSTER_GRID = Code(
    "K0523",
    "grid not divisible by its cluster",
    "A grid consists of whole clusters: each of its dimensions is a multiple of the cluster's at every value of its "
    "symbols. Write the grid as a `mul` by the size of the cluster.",
    edit(f"{_FINAL}/cluster", "[3, 1, 1]", "[2, 1, 1]"),
)


def check(scope: Scope, step: Step, ranges: SymbolRanges, path: Path) -> Iterator[Diagnostic]:
    """The launch geometry of a step that is not a built-in operator."""
    yield from _block(step, (*path, "block"))
    for index, (size, limit) in enumerate(zip(step.grid, MAX_GRID, strict=True)):
        yield from scope.expression_errors(size, (*path, "grid", index), STEP_SYMBOL_UNKNOWN, STEP_FACTOR)
        yield from _grid(size, limit, ranges, (*path, "grid", index))
    yield from scope.expression_errors(step.shared_mem, (*path, "shared_mem"), STEP_SYMBOL_UNKNOWN, STEP_FACTOR)
    yield from _shared_mem(step.shared_mem, ranges, (*path, "shared_mem"))
    if step.cluster is not None:
        yield from _cluster(step.cluster, step.grid, ranges, (*path, "cluster"))


def _block(step: Step, path: Path) -> Iterator[Diagnostic]:
    low = [index for index, size in enumerate(step.block) if size < 1]
    for index in low:
        yield BLOCK_ZERO.at((*path, index), f"block {'xyz'[index]} is {step.block[index]}", "write 1 or more")
    x, y, z = step.block
    if z > MAX_BLOCK_Z:
        message = f"block z is {number(z)} threads; the limit is {MAX_BLOCK_Z}"
        yield BLOCK_Z.at((*path, 2), message, "move threads to x or y")
    if not low and x * y * min(z, MAX_BLOCK_Z) > MAX_THREADS:
        message = f"the block has {number(math.prod(step.block))} threads; the limit is {MAX_THREADS:,}"
        yield BLOCK_TOO_LARGE.at(path, message, "use a smaller block and a larger grid")


def _grid(size: Expr, limit: int, ranges: SymbolRanges, path: Path) -> Iterator[Diagnostic]:
    bounds = interval(size, ranges)
    if bounds is None:
        return
    low, high = bounds
    if high > limit:
        axis = "xyz"[int(path[-1])]
        message = f"grid {axis} can be {number(high)} blocks; the limit is {limit:,}"
        yield GRID_TOO_LARGE.at(path, message, "move this dimension to x, or lower the bound of a symbol")
    if low < 1 and not symbols_from_zero(size, ranges):
        yield GRID_ZERO.at(path, f"{show(size)} can be {number(low)} blocks", "make it 1 or more")


def _shared_mem(size: Expr, ranges: SymbolRanges, path: Path) -> Iterator[Diagnostic]:
    bounds = interval(size, ranges)
    if bounds is None:
        return
    low, high = bounds
    if high > MAX_SHARED_MEM:
        message = f"shared memory can be {number(high)} bytes; the limit is {MAX_SHARED_MEM:,}"
        yield SHARED_MEM_TOO_LARGE.at(path, message, "use less, or lower the bound of a symbol")
    if low < 0:
        yield SHARED_MEM_NEGATIVE.at(path, f"{show(size)} can be {number(low)} bytes", "write 0 or more")


def _cluster(
    cluster: tuple[int, int, int], grid: tuple[Expr, Expr, Expr], ranges: SymbolRanges, path: Path
) -> Iterator[Diagnostic]:
    if min(cluster) < 1 or math.prod(cluster) > MAX_CLUSTER:
        message = f"the cluster is {' × '.join(map(str, cluster))} blocks"
        yield CLUSTER_SIZE.at(path, message, f"write dimensions of 1 or more whose product is at most {MAX_CLUSTER}")
        return
    for index, (part, size) in enumerate(zip(cluster, grid, strict=True)):
        # Divisible at both bounds is not enough: between 2 and 64 rows there are odd numbers.
        if interval(size, ranges) is not None and divisor(size, ranges) % part:
            message = f"the grid's {show(size)} is not a multiple of {part} at every value"
            yield CLUSTER_GRID.at((*path, index), message, f"make that dimension of the grid a multiple of {part}")


CODES = (
    BLOCK_ZERO, BLOCK_TOO_LARGE, BLOCK_Z, GRID_TOO_LARGE, GRID_ZERO, SHARED_MEM_TOO_LARGE, SHARED_MEM_NEGATIVE,
    STEP_FACTOR, STEP_SYMBOL_UNKNOWN, CLUSTER_SIZE, CLUSTER_GRID,
)  # fmt: skip
