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
from kern.manifest.params import Param
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

Given: TypeAlias = DispatchArg | ScratchArg
"""What a parameter of a launch is given: an argument of the dispatch, or what the step itself fixes."""


class Access(NamedTuple):  # a tuple, since a manifest has many thousands
    """One pointer that a kernel or a launch is given, and what it may do through it.

    The memory is `name` among things of its `kind`, from `offset` bytes on. A scratch is one of the dispatched
    kernel. `extent` is the bytes that are accessed; None where that is not declared: up to the end of the array or
    state. `param` is the parameter that takes the pointer, number `position` of the launch (or of the interface, where
    the access is a dispatch's). `interface` is the interface parameter that the pointer comes through; None for
    scratch.
    """

    kind: Literal["buffer", "state", "scratch"]
    name: str
    offset: int
    extent: Extent | None
    param: Param
    position: int
    interface: int | None

    @property
    def reads(self) -> bool:
        """Whether the memory may be read."""
        return self.param.reads

    @property
    def writes(self) -> bool:
        """Whether the memory may be written."""
        return self.param.writes


@dataclass(frozen=True, slots=True)
class LaunchEffects:
    """The accesses of one launch: step `step` of dispatch number `dispatch` of a program."""

    dispatch: int
    step: int
    accesses: tuple[Access, ...]


def effects(manifest: Manifest, program: str) -> Iterator[LaunchEffects]:
    """What each launch of `program` does, in the order of the launches."""
    for index, dispatch in enumerate(manifest.programs[program].dispatches):
        kernel = manifest.kernels.get(dispatch.kernel)
        for number, step in enumerate(() if kernel is None else kernel.impl.steps):
            yield LaunchEffects(index, number, tuple(step_accesses(step, dispatch.args)))


def dispatch_accesses(kernel: Kernel, dispatch: Dispatch) -> Iterator[Access]:
    """What a dispatch of `kernel` may do through its interface: an access for each buffer and state it gives."""
    for index, (arg, param) in enumerate(zip(dispatch.args, kernel.params, strict=False)):
        access = _access(arg, param, index, index, None)
        if access is not None:
            yield access


def step_accesses(step: Step, args: Sequence[DispatchArg]) -> Iterator[Access]:
    """What a launch of `step` does, for a dispatch with these arguments: an access for each pointer it is given."""
    operands = given(step, args)
    extents = _extents(step, operands)
    for index, (arg, operand, param) in enumerate(zip(step.args, operands, launch_params(step), strict=False)):
        if operand is not None:
            interface = arg.arg if type(arg) is Arg else None
            access = _access(operand, param, index, interface, extents[index] if index < len(extents) else None)
            if access is not None:
                yield access


def given(step: Step, args: Sequence[DispatchArg]) -> tuple[Given | None, ...]:
    """What each parameter of a launch is given where a dispatch has these arguments; None where nothing is there."""
    # `type … is`: an isinstance that fails is slow for pydantic classes, and this runs for every argument.
    return tuple(
        (args[arg.arg] if 0 <= arg.arg < len(args) else None) if type(arg) is Arg else arg for arg in step.args
    )


def integer(operand: Given | None) -> Expr | None:
    """The expression behind an i32 argument; None for anything else."""
    if type(operand) is I32:
        return operand.i32
    if type(operand) is ExprArg:
        return operand.expr
    return operand if type(operand) is Sym else None


def _extents(step: Step, operands: Sequence[Given | None]) -> Sequence[Extent]:
    """The bytes of a built-in operator's operands; none for another step, whose kernel alone knows."""
    operator = operator_of(step)
    if operator is None:
        return ()
    m, n, k = (*map(integer, operands[3:6]), None, None, None)[:3]
    return () if m is None or n is None or k is None else operator.extents(m, n, k)


def _access(operand: Given, param: Param, position: int, interface: int | None, extent: Extent | None) -> Access | None:
    if param.scalar is not None:
        return None
    if type(operand) is BufferArg:
        return Access("buffer", operand.buf, operand.offset, extent, param, position, interface)
    if type(operand) is StateArg:
        return Access("state", operand.state, operand.offset, extent, param, position, interface)
    if type(operand) is ScratchArg:
        return Access("scratch", operand.scratch, operand.offset, extent, param, position, interface)
    return None
