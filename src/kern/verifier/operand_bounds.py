"""Rule 7, built-in operators: whether m, n, k reach past the bytes behind the arguments."""

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
    "C takes m·n elements, A m·k and W n·k, counted from the argument's offset. At the upper bounds of the program's "
    "symbols they must lie within the array, or the operator would read or write what is not its own. Usually two "
    "extents are swapped, or an offset leaves too little behind it.",
    edit(f"{_PRODUCT}/args/4", '{"i32": 256}', '{"i32": 64}'),
)
EXTENT_ZERO = Code(
    "K0718",
    "matrix product without extent",
    "m, n and k are at least 1 at every value of the program's symbols. A product without rows, columns or depth is "
    "an error of the operator.",
    edit(f"{_PRODUCT}/args/3", '{"sym": "start"}', '{"sym": "rows"}'),
)


def check(scope: Scope, program: str, dispatch: Dispatch, steps: Iterable[Step], path: Path) -> Iterator[Diagnostic]:
    """A dispatch without other errors, against the built-in operators among the steps of its kernel."""
    for step in steps:
        yield from _operator(scope, program, dispatch, step, (*path, "args"))


def _operator(scope: Scope, program: str, dispatch: Dispatch, step: Step, path: Path) -> Iterator[Diagnostic]:
    ranges = scope.ranges.programs[program]
    operands = step_accesses(step, dispatch.args)
    c, a, w = (access.extent for access in operands)
    if c is None or a is None or w is None:
        return  # m, n or k has an error of its own
    known = [bounds for expr in (c.rows, c.columns, a.columns) if (bounds := interval(expr, ranges)) is not None]
    sizes = [_bytes_behind(scope, program, dispatch, access) for access in operands]
    behind = [size for size in sizes if size is not None]
    if len(known) < 3 or len(behind) < 3:
        return  # a symbol or an array has
    for index, (low, _) in enumerate(known):
        if low < 1:
            message = f"{'mnk'[index]} can be {number(low)}"
            yield EXTENT_ZERO.at(_location(step.args[3 + index], path), message, "make it 1 or more")
    if min(low for low, _ in known) > 0:
        m, n, k = (high for _, high in known)
        needed = [m * n * c.item, m * k * a.item, n * k * w.item]
        past = [index for index in range(3) if needed[index] > behind[index]]
        if past:
            # One wrong extent reaches past two operands: one error, reported at the first.
            takes = (f"{'CAW'[i]} takes {counted(needed[i], 'byte')} of {number(behind[i])}" for i in past)
            message = f"{' and '.join(takes)}, at m {m}, n {n}, k {k}"
            location = _location(step.args[past[0]], path)
            yield PAST_THE_END.at(location, message, "fix the extents, the offset or the array")
        else:
            yield from overlap(list(zip(operands, needed, strict=True)), _location(step.args[0], path))


def _bytes_behind(scope: Scope, program: str, dispatch: Dispatch, access: Access) -> int | None:
    """Bytes from the operand's address to the array's end, at the upper bounds that hold for it here."""
    if access.kind == "buffer":
        size = scope.bytes_in(program, access.name)
    else:
        size = scope.scratch_bytes[dispatch.kernel][access.name]
    return None if size is None else size - access.offset


def _location(arg: StepArg, path: Path) -> Path:
    """The dispatch's own argument; where the step fixes it, the arguments as a whole."""
    return (*path, arg.arg) if isinstance(arg, Arg) else path


CODES = (PAST_THE_END, EXTENT_ZERO)
