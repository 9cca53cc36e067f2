"""Which arguments of a kernel's steps resolve, and what an interface parameter asks of its callers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from kern.manifest.params import Param
from kern.manifest.types import Arg, Kernel, ScratchArg
from kern.verifier.operators import Extern, extern_of, launch_params


@dataclass(frozen=True, slots=True)
class ExternCall:
    """A step that is a built-in operator: its index among the steps, and the operator."""

    step: int
    extern: Extern


@dataclass(frozen=True, slots=True)
class Interface:
    """A kernel as its callers see it.

    `kinds` has each parameter once that differs from others by more than its alignment. `alignments` are in bytes,
    an interface parameter's own or that of a launch it is forwarded to, whichever is more. `pointers` are (index,
    read, written) of every parameter to a buffer or state, `written` the indices of those that are written.
    """

    params: tuple[Param, ...]
    kinds: tuple[Param, ...]
    alignments: tuple[int, ...]
    pointers: tuple[tuple[int, bool, bool], ...]
    written: tuple[int, ...]
    externs: tuple[ExternCall, ...]

    @classmethod
    def of(cls, kernel: Kernel) -> Interface:
        """Work it out."""
        alignments = [param.alignment for param in kernel.params]
        for arg, param in _pairs(kernel):
            if isinstance(arg, Arg) and not out_of_range(arg, kernel) and param.is_pointer:
                alignments[arg.arg] = max(alignments[arg.arg], param.alignment)
        pointers = tuple((i, p.reads, p.writes) for i, p in enumerate(kernel.params) if p.is_pointer)
        written = tuple(index for index, _, writes in pointers if writes)
        calls = [(index, extern_of(step)) for index, step in enumerate(kernel.impl.steps)]
        externs = tuple(ExternCall(index, extern) for index, extern in calls if extern is not None)
        externs = externs if wired(kernel) else ()
        kinds = dict.fromkeys(Param(param.scalar, param.direction, param.dtype) for param in kernel.params)
        return cls(kernel.params, tuple(kinds), tuple(alignments), pointers, written, externs)


def _pairs(kernel: Kernel) -> Iterator[tuple[object, Param]]:
    for step in kernel.impl.steps:
        yield from zip(step.args, launch_params(step), strict=False)


def out_of_range(arg: Arg, kernel: Kernel) -> bool:
    """Whether the interface has no such parameter."""
    return not 0 <= arg.arg < len(kernel.params)


def wired(kernel: Kernel) -> bool:
    """Whether there are steps and every argument of theirs is known and of the right kind.

    Where one is not, what the steps leave unread, unwritten or unused says nothing.
    """
    return _all_resolve(kernel, _resolves)


def forwards(kernel: Kernel) -> bool:
    """As `wired`, but for scratch: a misnamed one is no interface parameter, whatever it was meant to be."""
    return _all_resolve(
        kernel,
        lambda kernel, arg, param: (isinstance(arg, ScratchArg) and param.is_pointer) or _resolves(kernel, arg, param),
    )


def _all_resolve(kernel: Kernel, resolves: Callable[[Kernel, object, Param], bool]) -> bool:
    """Whether there are steps, each with its number of arguments, all of which resolve."""
    steps = [(step.args, launch_params(step)) for step in kernel.impl.steps]
    return bool(steps) and all(
        len(args) == len(params) and all(map(partial(resolves, kernel), args, params)) for args, params in steps
    )


def _resolves(kernel: Kernel, arg: object, param: Param) -> bool:
    if isinstance(arg, Arg):
        if out_of_range(arg, kernel):
            return False
        interface = kernel.params[arg.arg]
        return interface.kind == param.kind and (interface.writes or not param.writes)
    if isinstance(arg, ScratchArg):
        scratch = kernel.impl.scratch.get(arg.scratch)
        return scratch is not None and scratch.dtype == param.dtype
    return not param.is_pointer
