"""Rule 7, built-in operators: m, n and k against the sizes of the arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kern.manifest.counts import counted, number
from kern.manifest.diagnostics import Code, Diagnostic, Path
from kern.manifest.effects import Access, step_accesses
from kern.manifest.types import Arg, Dispatch, Step, StepArg
from kern.verifier.aliasing import overlap
from kern.verifier.example import edit
from kern.verifier.expressions import interval
from kern.verifier.scope import Scope

_PRODUCT = "/programs/fill/dispatches/0"

PAST_THE_END = Code(
    "K0716",
    "matrix product past the end of an argument",
    "C has m·n elements, A m·k and W n·k, from the argument's offset on. At the upper bounds of the program's symbols "
    "they must fit in the array, or the operator would access other memory. Usually two extents are swapped, or an "
    "offset leaves too few bytes.",
    edit(f"{_PRODUCT}/args/4", '{"i32": 256}', '{"i32": 64}'),
)
EXTENT_ZERO = Code(
    "K0718",
    "empty matrix product",
    "m, n and k are at least 1 at every value of the program's symbols. The operator rejects an empty product.",
    edit(f"{_PRODUCT}/args/3", '{"sym": "start"}', '{"sym": "rows"}'),
)


def check(scope: Scope, program: str, dispatch: Dispatch, steps: Iterable[Step], path: Path) -> Iterator[Diagnostic]:
    """The errors of a dispatch that has no other ones, at the built-in operators among the steps of its kernel."""
    for step in steps:
        yield from _operator(scope, program, dispatch, step, (*path, "args"))


def _operator(scope: Scope, program: str, dispatch: Dispatch, step: Step, path: Path) -> Iterator[Diagnostic]:
    ranges = scope.ranges.programs[program]
    operands = step_accesses(step, dispatch.args)
    c, a, w = (access.extent for access in operands)
    if c is None or a is None or w is None:
        return  # another rule reports m, n or k
    known = [bounds for expr in (c.rows, c.columns, a.columns) if (bounds := interval(expr, ranges)) is not None]
    sizes = [_bytes_left(scope, program, dispatch, access) for access in operands]
    left = [size for size in sizes if size is not None]
    if len(known) < 3 or len(left) < 3:
        return  # another rule reports a symbol or an array
    for index, (low, _) in enumerate(known):
        if low < 1:
            message = f"{'mnk'[index]} can be {number(low)}"
            yield EXTENT_ZERO.at(_location(step.args[3 + index], path), message, "make it 1 or more")
    if min(low for low, _ in known) > 0:
        m, n, k = (high for _, high in known)
        needed = [m * n * c.item, m * k * a.item, n * k * w.item]
        past = [index for index in range(3) if needed[index] > left[index]]
        if past:
            # One wrong extent makes two operands too large: one error, reported at the first.
            takes = (f"{'CAW'[i]} takes {counted(needed[i], 'byte')} of {number(left[i])}" for i in past)
            message = f"{' and '.join(takes)}, at m {m}, n {n}, k {k}"
            location = _location(step.args[past[0]], path)
            yield PAST_THE_END.at(location, message, "fix the extents, the offset or the array")
        else:
            yield from overlap(list(zip(operands, needed, strict=True)), _location(step.args[0], path))


def _bytes_left(scope: Scope, program: str, dispatch: Dispatch, access: Access) -> int | None:
    """Bytes from the operand's address to the end of the array, at the upper bounds that hold here."""
    if access.kind == "buffer":
        size = scope.bytes_in(program, access.name)
    else:
        size = scope.scratch_bytes[dispatch.kernel][access.name]
    return None if size is None else size - access.offset


def _location(arg: StepArg, path: Path) -> Path:
    """The argument of the dispatch; where the step has its own, all arguments of the dispatch."""
    return (*path, arg.arg) if isinstance(arg, Arg) else path


CODES = (PAST_THE_END, EXTENT_ZERO)
