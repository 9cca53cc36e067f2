"""Rule 7, built-in operators: whether m, n, k reach past the bytes behind the arguments."""

from __future__ import annotations

from collections.abc import Iterator

from kern.manifest.counts import counted, number
from kern.manifest.diagnostics import Code, Path
from kern.manifest.expressions import Interval, Sym
from kern.manifest.types import I32, Arg, BufferArg, Dispatch, ExprArg, ScratchArg, Step, StepArg
from kern.verifier.aliasing import Extent, overlap
from kern.verifier.example import edit
from kern.verifier.expressions import interval
from kern.verifier.found import Found
from kern.verifier.scalars import literal_fits
from kern.verifier.scope import Scope, most_bytes
from kern.verifier.wiring import ExternCall, Interface

_PRODUCT = "/programs/fill/dispatches/0"
_OPERANDS = ("C", "A", "W")

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


def check(scope: Scope, program: str, dispatch: Dispatch, interface: Interface) -> Iterator[Found]:
    """A dispatch without other faults, against every operator behind its kernel."""
    for call in interface.externs:
        yield from _call(scope, program, dispatch, call)


def _call(scope: Scope, program: str, dispatch: Dispatch, call: ExternCall) -> Iterator[Found]:
    step = scope.manifest.kernels[dispatch.kernel].impl.steps[call.step]
    extents = [_extent(scope, program, dispatch, arg) for arg in step.args[3:6]]
    known = [extent for extent in extents if extent is not None]
    behind = [size for index in range(3) if (size := _behind(scope, program, dispatch, step, index)) is not None]
    if len(known) < 3 or len(behind) < 3:
        return  # an extent or an array has a fault of its own
    for index, (low, _) in enumerate(known):
        if low < 1:
            message = f"{'mnk'[index]} can be {number(low)}"
            yield Found(EXTENT_ZERO, _place(step.args[3 + index]), message, "make it 1 or more")
    if min(low for low, _ in known) > 0:
        m, n, k = (high for _, high in known)
        past = list(_past_the_end(call, step, [m, n, k], behind))
        yield from past or _overlap(dispatch, call, step, call.extern.operand_bytes(m, n, k))


def _past_the_end(call: ExternCall, step: Step, extents: list[int], behind: list[int]) -> Iterator[Found]:
    m, n, k = extents
    needed = call.extern.operand_bytes(m, n, k)
    past = [index for index in range(3) if needed[index] > behind[index]]
    if past:
        # One wrong extent reaches past two operands: one fault, told at the first.
        told = (f"{_OPERANDS[i]} takes {counted(needed[i], 'byte')} of {number(behind[i])}" for i in past)
        message = f"{' and '.join(told)}, at m {m}, n {n}, k {k}"
        place = _place(step.args[past[0]])
        yield Found(PAST_THE_END, place, message, "fix the extents, the offset or the array")


def _overlap(dispatch: Dispatch, call: ExternCall, step: Step, needed: tuple[int, int, int]) -> Iterator[Found]:
    """At the upper bounds, where every operand is longest."""
    given = [dispatch.args[arg.arg] if isinstance(arg, Arg) else arg for arg in step.args[:3]]
    operands: list[Extent] = []
    for arg, size in zip(given, needed, strict=True):
        if isinstance(arg, BufferArg):
            operands.append(Extent("buffer", arg.buf, arg.offset, arg.offset + size))
        elif isinstance(arg, ScratchArg):
            operands.append(Extent("scratch", arg.scratch, arg.offset, arg.offset + size))
    c, a, w = operands  # none is of another kind: the bytes behind each are known
    yield from overlap((c, a, w), _place(step.args[0]))


def _extent(scope: Scope, program: str, dispatch: Dispatch, arg: StepArg) -> Interval | None:
    given = dispatch.args[arg.arg] if isinstance(arg, Arg) else arg
    ranges = scope.ranges.programs[program]
    match given:
        case Sym():
            return interval(given, ranges)
        case ExprArg():
            return interval(given.expr, ranges)
        case I32() if literal_fits(given):
            return given.value, given.value
        case _:
            return None


def _behind(scope: Scope, program: str, dispatch: Dispatch, step: Step, index: int) -> int | None:
    """Bytes from the operand's address to the array's end, at the upper bounds that hold for it here."""
    arg = step.args[index]
    given = dispatch.args[arg.arg] if isinstance(arg, Arg) else arg
    if isinstance(given, BufferArg):
        size = most_bytes(scope.manifest.buffers[given.buf], scope.ranges.programs[program])
    elif isinstance(given, ScratchArg):
        size = scope.scratch_bytes[dispatch.kernel][given.scratch]
    else:
        return None
    return None if size is None else size - given.offset


def _place(arg: StepArg) -> Path:
    """The dispatch's own argument; where the step fixes it, the arguments as a whole."""
    return ("args", arg.arg) if isinstance(arg, Arg) else ("args",)


CODES = (PAST_THE_END, EXTENT_ZERO)
