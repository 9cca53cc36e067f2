"""References that do not resolve, and what they may have meant: it must not be told off as unused or unwritten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kern.manifest.params import DType, Param
from kern.manifest.types import BufferArg, Dispatch, DispatchArg, StateArg
from kern.verifier.scope import Scope

Slot = tuple[DispatchArg | None, Param | None]
"""An argument and the parameter it stands for; either may be missing."""


def slots(scope: Scope, dispatch: Dispatch) -> Iterator[Slot]:
    """The arguments of a dispatch with their parameters.

    Where the numbers differ nobody knows which argument is for which parameter: they come apart, and of equal
    parameters one stands for all.
    """
    interface = scope.interfaces.get(dispatch.kernel)
    if interface is None:
        yield from ((arg, None) for arg in dispatch.args)
    elif len(interface.params) == len(dispatch.args):
        yield from zip(dispatch.args, interface.params, strict=True)
    else:
        yield from ((arg, None) for arg in dispatch.args)
        if len(dispatch.args) < len(interface.params):
            yield from ((None, param) for param in interface.kinds)


def resolves(scope: Scope, arg: DispatchArg | None, param: Param | None) -> bool:
    """Whether `arg` is a declared thing of the kind that `param` takes; without a parameter, not an unknown buffer."""
    if isinstance(arg, BufferArg):
        buffer = scope.manifest.buffers.get(arg.buf)
        return buffer is not None and (param is None or param.dtype == buffer.dtype)
    if isinstance(arg, StateArg):
        return param is None or (arg.state in scope.manifest.states and param.kind == "ptr")
    return param is None or (arg is not None and param.scalar is not None)


@dataclass(frozen=True, slots=True)
class Unresolved:
    """What unresolved references may have meant.

    `buffers` holds the dtypes sought, None for any; `written` those sought by a parameter that writes;
    `kernels` the numbers of arguments given to unknown kernels. `mispassed` names the buffers that are passed
    where another kind or dtype belongs: data flow through them says nothing.
    """

    buffers: frozenset[DType | None]
    written: frozenset[DType | None]
    kernels: frozenset[int]
    mispassed: frozenset[str]
    states: bool
    symbols: bool

    @classmethod
    def of(cls, scope: Scope) -> Unresolved:
        """Walk the programs once."""
        programs, declared = scope.manifest.programs.values(), scope.manifest.symbols.keys()
        calls = [dispatch for program in programs for dispatch in program.dispatches]
        lost = [slot for call in calls for slot in slots(scope, call) if not resolves(scope, *slot)]
        params = [param for _, param in lost if param is not None]
        idle = not all(program.dispatches for program in programs)
        anything: set[DType | None] = {None} if idle or not programs else set()
        anyone: set[DType | None] = {None} if any(param is None for _, param in lost) else set()
        return cls(
            buffers=frozenset(anything | anyone | {param.dtype for param in params if param.dtype is not None}),
            written=frozenset(anything | {param.dtype for param in params if param.dtype is not None and param.writes}),
            kernels=frozenset(len(call.args) for call in calls if call.kernel not in scope.interfaces),
            mispassed=frozenset(arg.buf for arg, param in lost if isinstance(arg, BufferArg) and param is not None),
            states=idle
            or any(param.kind == "ptr" for param in params)
            or not scope.usage.states <= scope.manifest.states.keys(),
            symbols=idle
            or any(param.scalar is not None for param in params)
            or not scope.usage.symbols <= declared
            or not all(program.symbols.keys() <= declared for program in programs),
        )


NOTHING_UNRESOLVED = Unresolved(frozenset(), frozenset(), frozenset(), frozenset(), False, False)
