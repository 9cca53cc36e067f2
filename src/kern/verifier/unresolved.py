"""References that do not resolve, and what they may have meant: it must not be told off as unused or unwritten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kern.manifest.params import DType, Param
from kern.manifest.types import BufferArg, Dispatch, DispatchArg, Manifest, StateArg
from kern.verifier.scope import Scope

Slot = tuple[DispatchArg | None, Param | None]
"""An argument and the parameter it stands for; either may be missing."""


def slots(scope: Scope, dispatch: Dispatch) -> Iterator[Slot]:
    """The arguments of a dispatch with their parameters.

    Where the numbers differ nobody knows which argument is for which parameter: they come apart.
    """
    interface = scope.interfaces.get(dispatch.kernel)
    if interface is None:
        yield from ((arg, None) for arg in dispatch.args)
    elif len(interface.params) == len(dispatch.args):
        yield from zip(dispatch.args, interface.params, strict=True)
    else:
        yield from ((arg, None) for arg in dispatch.args)
        if len(dispatch.args) < len(interface.params):
            yield from ((None, param) for param in interface.params)


def resolves(scope: Scope, arg: DispatchArg | None, param: Param) -> bool:
    """Whether `arg` is a declared thing of the kind that `param` takes."""
    if isinstance(arg, BufferArg):
        buffer = scope.manifest.buffers.get(arg.buf)
        return buffer is not None and param.dtype == buffer.dtype
    if isinstance(arg, StateArg):
        return arg.state in scope.manifest.states and param.kind == "ptr"
    return arg is not None and param.scalar is not None


@dataclass(frozen=True, slots=True)
class Unresolved:
    """What unresolved references may have meant.

    `buffers` holds the dtypes sought, None for any; `written` those sought by a parameter that writes;
    `kernels` the numbers of arguments given to unknown kernels.
    """

    buffers: frozenset[DType | None]
    written: frozenset[DType | None]
    kernels: frozenset[int]
    states: bool
    symbols: bool

    @classmethod
    def of(cls, scope: Scope) -> Unresolved:
        """Walk the programs once."""
        manifest = scope.manifest
        buffers: set[DType | None] = set()
        written: set[DType | None] = set()
        kernels: set[int] = set()
        states = symbols = any(not program.dispatches for program in manifest.programs.values())
        if states or not manifest.programs:
            buffers, written = {None}, {None}
        for program in manifest.programs.values():
            for dispatch in program.dispatches:
                if dispatch.kernel not in manifest.kernels:
                    kernels.add(len(dispatch.args))
                for arg, param in slots(scope, dispatch):
                    if param is None:
                        if isinstance(arg, BufferArg) and arg.buf not in manifest.buffers:
                            buffers.add(None)
                    elif not resolves(scope, arg, param):
                        symbols = symbols or param.scalar is not None
                        states = states or param.kind == "ptr"
                        if param.dtype is not None:
                            buffers.add(param.dtype)
                            written.update({param.dtype} if param.writes else ())
        unknown = not scope.usage.symbols <= manifest.symbols.keys() or _unknown_bounds(manifest)
        return cls(
            frozenset(buffers),
            frozenset(written),
            frozenset(kernels),
            states or not scope.usage.states <= manifest.states.keys(),
            symbols or unknown,
        )


def _unknown_bounds(manifest: Manifest) -> bool:
    return any(not program.symbols.keys() <= manifest.symbols.keys() for program in manifest.programs.values())


NOTHING_UNRESOLVED = Unresolved(frozenset(), frozenset(), frozenset(), False, False)
