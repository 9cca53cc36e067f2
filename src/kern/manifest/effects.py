"""What a program does to memory: each access of each dispatch and step, in the one place that works it out.

A dispatch accesses memory through its kernel's interface (`dispatch_accesses`), and step by step through the
launches behind it (`step_accesses`; `effects` for a whole program). A manifest need not be verified: a reference
that leads nowhere (an unknown kernel, an argument that is not there) has no access. Names are not looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from kern.manifest.expressions import Expr, Sym
from kern.manifest.operators import Extent, launch_params, operator_of
from kern.manifest.params import SCALAR_RANGE, Param
from kern.manifest.types import (
    I32,
    Arg,
    BufferArg,
    Dispatch,
    DispatchArg,
    ExprArg,
    Kernel,
    Manifest,
    ScratchArg,
    StateArg,
    Step,
)

Kind = Literal["buffer", "state", "scratch", "parameter"]
Given: TypeAlias = DispatchArg | ScratchArg
"""What a parameter of a launch is given: an argument of the dispatch, or what the step itself fixes."""


class Access(NamedTuple):  # a tuple, since a manifest has many thousands
    """One pointer that a kernel or a launch is given, and what it may do through it.

    The memory is `name` among things of its `kind`, from `offset` bytes on; a scratch is one of the dispatched kernel.
    Without a dispatch, what a step forwards is of kind "parameter", named by its index in the interface. `extent` is
    the bytes accessed; None where that is not declared: they end at the end of the array or state. `param` is the
    parameter that takes the pointer, number `position` of the launch (of the interface, where the access is a
    dispatch's), and says whether the memory may be read and written. `interface` is the interface parameter that the
    pointer comes through; None for scratch.
    """

    kind: Kind
    name: str
    offset: int
    extent: Extent | None
    reads: bool
    writes: bool
    param: Param
    position: int
    interface: int | None


@dataclass(frozen=True, slots=True)
class LaunchEffects:
    """The accesses of one launch: step `step` of `kernel`, for dispatch number `dispatch` of a program."""

    dispatch: int
    kernel: str
    step: int
    accesses: tuple[Access, ...]


def effects(manifest: Manifest, program: str) -> Iterator[LaunchEffects]:
    """What each launch of `program` does, in the order of the launches."""
    for index, dispatch in enumerate(manifest.programs[program].dispatches):
        kernel = manifest.kernels.get(dispatch.kernel)
        for number, step in enumerate(() if kernel is None else kernel.impl.steps):
            yield LaunchEffects(index, dispatch.kernel, number, step_accesses(step, dispatch.args))


def buffers_used(manifest: Manifest, program: str) -> tuple[set[str], set[str]]:
    """The buffers that the kernels of a program of a verified manifest may read, and those that they may write."""
    dispatches = manifest.programs[program].dispatches
    every = [each for one in dispatches for each in dispatch_accesses(manifest.kernels[one.kernel], one)]
    buffers = [access for access in every if access.kind == "buffer"]
    return {each.name for each in buffers if each.reads}, {each.name for each in buffers if each.writes}


def dispatch_accesses(kernel: Kernel, dispatch: Dispatch) -> tuple[Access, ...]:
    """What a dispatch of `kernel` may do through its interface: an access for each buffer and state it gives."""
    return _accesses(dispatch.args, kernel.params, range(len(dispatch.args)), ())


def step_accesses(step: Step, args: Sequence[DispatchArg] | None) -> tuple[Access, ...]:
    """What a launch of `step` does, for a dispatch with these arguments: an access for each pointer it is given.

    Without arguments, what it does for any dispatch.
    """
    operands = step.args if args is None else given(step, args)
    interface = [arg.arg if type(arg) is Arg else None for arg in step.args]
    return _accesses(operands, launch_params(step), interface, _extents(step, operands))


def given(step: Step, args: Sequence[DispatchArg]) -> tuple[Given | None, ...]:
    """What each parameter of a launch is given where a dispatch has these arguments; None where nothing is there."""
    # `type … is`: an isinstance that fails is slow for pydantic classes, and this runs for every argument.
    return tuple(
        (args[arg.arg] if 0 <= arg.arg < len(args) else None) if type(arg) is Arg else arg for arg in step.args
    )


def integer(operand: Given | Arg | None) -> Expr | None:
    """The expression behind an i32 argument; None for anything else, and for a literal out of range."""
    if type(operand) is I32:
        low, high = SCALAR_RANGE["i32"]
        return operand.i32 if low <= operand.i32 <= high else None
    if type(operand) is ExprArg:
        return operand.expr
    return operand if type(operand) is Sym else None


def _extents(step: Step, operands: Sequence[Given | Arg | None]) -> Sequence[Extent]:
    """The bytes of a built-in operator's operands; none for another step, whose kernel alone knows."""
    operator = operator_of(step)
    if operator is None:
        return ()
    m, n, k = (*map(integer, operands[3:6]), None, None, None)[:3]
    return () if m is None or n is None or k is None else operator.extents(m, n, k)


def _accesses(
    operands: Sequence[Given | Arg | None],
    params: Sequence[Param],
    interface: Sequence[int | None],
    extents: Sequence[Extent],
) -> tuple[Access, ...]:
    found = []
    kind: Kind
    for index, (operand, param, through) in enumerate(zip(operands, params, interface, strict=False)):
        if param.scalar is not None:
            continue
        if type(operand) is BufferArg:
            kind, name, offset = "buffer", operand.buf, operand.offset
        elif type(operand) is StateArg:
            kind, name, offset = "state", operand.state, operand.offset
        elif type(operand) is ScratchArg:
            kind, name, offset = "scratch", operand.scratch, operand.offset
        elif type(operand) is Arg:
            kind, name, offset = "parameter", str(operand.arg), 0
        else:
            continue
        extent = extents[index] if index < len(extents) else None
        found.append(Access(kind, name, offset, extent, param.reads, param.writes, param, index, through))
    return tuple(found)
