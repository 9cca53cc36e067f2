"""Rule 5, the launch: block, grid, shared memory, cluster, and the expressions in them."""

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
    "Each of a block's three dimensions is at least 1; a dimension that is not used is 1. A block without threads is "
    "an error on the device.",
    edit(f"{_SCALE}/block", "[128, 0, 1]", "[128, 1, 1]"),
)
BLOCK_TOO_LARGE = Code(
    "K0504",
    "block of too many threads",
    "A block has at most 1024 threads, the product of its three dimensions, on every CUDA device. Make the block "
    "smaller and let the grid, or a loop in the kernel, cover the rest.",
    edit(f"{_SCALE}/block", "[128, 16, 1]", "[128, 8, 1]"),
)
BLOCK_Z = Code(
    "K0505",
    "block too deep in z",
    "The third dimension of a block is at most 64 on every CUDA device, fewer than the first two may have. Move "
    "threads to x or y.",
    edit(f"{_SCALE}/block", "[1, 1, 128]", "[128, 1, 1]"),
)
GRID_TOO_LARGE = Code(
    "K0506",
    "grid too large",
    "CUDA devices take grids of at most 2147483647 × 65535 × 65535 blocks. The grid is checked at the upper bounds of "
    "its symbols over all programs that dispatch the kernel. Move the long dimension to x, or lower a bound.",
    edit(f"{_SCALE}/grid", '[1, {"mul": [{"sym": "rows"}, 1024]}, 1]', '[{"mul": [{"sym": "rows"}, 1024]}, 1, 1]'),
)
GRID_ZERO = Code(
    "K0507",
    "grid without blocks",
    "Each of a grid's three dimensions is at least 1, at the lower bounds of its symbols too; a dimension that is not "
    "used is 1. A launch without blocks is an error on the device.",
    edit(f"{_SCALE}/grid/1", "0", "1"),
)
SHARED_MEM_TOO_LARGE = Code(
    "K0508",
    "too much shared memory",
    "No device gives a block more than 232448 bytes (227 KB) of dynamic shared memory. It is checked at the upper "
    "bounds of its symbols. Smaller limits of single architectures are checked against the files.",
    edit(f"{_PARTIAL}/shared_mem", "232449", "232448"),
)
SHARED_MEM_NEGATIVE = Code(
    "K0509",
    "negative shared memory",
    "Shared memory is counted in bytes, 0 where a kernel needs none. A subtraction in the expression probably goes "
    "below 0 at the lower bound of a symbol.",
    edit(f"{_PARTIAL}/shared_mem", "-1", "0"),
)
STEP_FACTOR = Code(
    "K0515",
    "factor or divisor below 1 in a step",
    "The number in `mul` and `ceil_div` is at least 1. So every expression grows with its symbols, and its bounds are "
    "its values at theirs.",
    edit(f"{_SCALE}/grid/0", '{"ceil_div": [{"sym": "rows"}, 0]}', '{"ceil_div": [{"sym": "rows"}, 4]}'),
)
STEP_SYMBOL_UNKNOWN = Code(
    "K0516",
    "unknown symbol in a step",
    "Grid and shared memory are computed from symbols that `symbols` declares. Dispatch arguments have no names here.",
    edit(f"{_SCALE}/grid/0", '{"sym": "row"}', '{"sym": "rows"}'),
)
CLUSTER_SIZE = Code(
    "K0522",
    "impossible cluster",
    "A cluster's three dimensions are at least 1 and their product is at most 8, the size that every device with "
    "clusters takes. Larger ones need a device's leave, which a manifest cannot ask for.",
    edit(f"{_FINAL}/cluster", "[4, 4, 1]", "[4, 1, 1]"),
)
CLUSTER_GRID = Code(
    "K0523",
    "cluster that does not divide the grid",
    "A grid is launched in whole clusters: each of its dimensions is a multiple of the cluster's at every value of "
    "its symbols. Write the factor into the grid, as in `mul` by the cluster's size.",
    edit(f"{_FINAL}/cluster", "[3, 1, 1]", "[2, 1, 1]"),
)


def check(scope: Scope, step: Step, ranges: SymbolRanges, path: Path) -> Iterator[Diagnostic]:
    """The launch geometry of a step that is no extern."""
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
        yield BLOCK_ZERO.at((*path, index), f"a block dimension of {step.block[index]}", "write 1 or more")
    x, y, z = step.block
    if z > MAX_BLOCK_Z:
        message = f"a third block dimension of {z}, more than {MAX_BLOCK_Z}"
        yield BLOCK_Z.at((*path, 2), message, "move threads to the first or second dimension")
    if not low and x * y * min(z, MAX_BLOCK_Z) > MAX_THREADS:
        message = f"{number(math.prod(step.block))} threads in a block, more than {MAX_THREADS}"
        yield BLOCK_TOO_LARGE.at(path, message, "make the block smaller, and the grid larger")


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
        message = f"a cluster of {' × '.join(map(str, cluster))}"
        yield CLUSTER_SIZE.at(path, message, f"write dimensions of 1 or more, together at most {MAX_CLUSTER}")
        return
    for index, (part, size) in enumerate(zip(cluster, grid, strict=True)):
        # Divisible at both bounds is not enough: from 2 to 64 rows there are odd numbers of rows.
        if interval(size, ranges) is not None and divisor(size, ranges) % part:
            message = f"{part} does not divide the grid's {show(size)} at every value"
            yield CLUSTER_GRID.at((*path, index), message, f"make that dimension of the grid a multiple of {part}")


CODES = (
    BLOCK_ZERO, BLOCK_TOO_LARGE, BLOCK_Z, GRID_TOO_LARGE, GRID_ZERO, SHARED_MEM_TOO_LARGE, SHARED_MEM_NEGATIVE,
    STEP_FACTOR, STEP_SYMBOL_UNKNOWN, CLUSTER_SIZE, CLUSTER_GRID,
)  # fmt: skip
