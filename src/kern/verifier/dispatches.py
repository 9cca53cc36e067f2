"""Rule 7: dispatches against the kernels they call: names, number and kind of arguments."""

from __future__ import annotations

from collections.abc import Iterator

from kern.manifest.diagnostics import Code, Diagnostic, Path
from kern.manifest.expressions import Sym
from kern.manifest.params import Param
from kern.manifest.types import BufferArg, Dispatch, DispatchArg, ExprArg, StateArg
from kern.verifier import addresses, reach, values
from kern.verifier.example import edit
from kern.verifier.expressions import faults
from kern.verifier.found import Found
from kern.verifier.scope import Scope

_SCALE = "/programs/fill/dispatches/1"
_RECORD = "/programs/fill/dispatches/2"

KERNEL_UNKNOWN = Code(
    "K0701",
    "unknown kernel",
    "A dispatch calls a kernel that `kernels` declares, by its name there and not by the symbol in its file.",
    edit(f"{_SCALE}/kernel", '"scale_f32"', '"scale"'),
)
BUFFER_UNKNOWN = Code(
    "K0702",
    "unknown buffer",
    "An argument names a buffer that `buffers` declares. A kernel's scratch is no buffer and cannot be reached here.",
    edit(f"{_SCALE}/args/1/buf", '"mix"', '"mixed"'),
)
STATE_UNKNOWN = Code(
    "K0703",
    "unknown state",
    "An argument names a state that `states` declares. Buffers are named by `buf`.",
    edit(f"{_RECORD}/args/1/state", '"past"', '"history"'),
)
SYMBOL_UNKNOWN = Code(
    "K0704",
    "unknown symbol in an argument",
    "A scalar argument is computed from symbols that `symbols` declares; their bounds show that it fits.",
    edit(f"{_RECORD}/args/2/sym", '"begin"', '"start"'),
)
ARGUMENT_COUNT = Code(
    "K0705",
    "dispatch arguments and interface differ in number",
    "A dispatch gives one argument for each parameter of the kernel's interface, in the same order. The parameters of "
    "single launches behind it do not count.",
    edit(f"{_SCALE}/args", '[{"buf": "scaled"}, {"buf": "mixed"}]',
         '[{"buf": "scaled"}, {"buf": "mixed"}, {"f32": 0.5}]'),
)  # fmt: skip
ARGUMENT_KIND = Code(
    "K0706",
    "dispatch argument of another kind",
    "A `buffer<dtype>` takes a buffer, a `ptr` takes a state, and a scalar takes a symbol, an expression or a literal "
    "of its type.",
    edit(f"{_SCALE}/args/2", '{"buf": "mixed"}', '{"f32": 0.5}'),
)


def check(scope: Scope) -> Iterator[Diagnostic]:
    """Everything of rule 7."""
    for program, body in scope.manifest.programs.items():
        for index, dispatch in enumerate(body.dispatches):
            for found in _dispatch(scope, program, dispatch):
                yield found.under(("programs", program, "dispatches", index))


def _dispatch(scope: Scope, program: str, dispatch: Dispatch) -> Iterator[Found]:
    interface = scope.interfaces.get(dispatch.kernel)
    if interface is None:
        hint = scope.names["kernel"].hint(dispatch.kernel)
        yield Found(KERNEL_UNKNOWN, ("kernel",), f"`{dispatch.kernel}` is no kernel", hint)
    elif len(interface.params) != len(dispatch.args):
        message = f"{len(dispatch.args)} arguments, and `{dispatch.kernel}` takes {len(interface.params)}"
        yield Found(ARGUMENT_COUNT, ("args",), message, "give one for each parameter")
        interface = None
    sound = interface is not None
    for index, arg in enumerate(dispatch.args):
        found = list(_unknown(scope, arg, ("args", index)))
        if not found and interface is not None:
            param, alignment = interface.params[index], interface.alignments[index]
            found = list(_argument(scope, program, arg, param, alignment, ("args", index)))
        sound = sound and not found
        yield from found
    if sound and interface is not None and interface.externs:
        yield from reach.check(scope, program, dispatch, interface)


def _unknown(scope: Scope, arg: DispatchArg, path: Path) -> Iterator[Found]:
    """Names that are not declared, and factors below 1, whatever the parameter."""
    if isinstance(arg, BufferArg):
        if arg.buf not in scope.manifest.buffers:
            hint = scope.names["buffer"].hint(arg.buf)
            yield Found(BUFFER_UNKNOWN, (*path, "buf"), f"`{arg.buf}` is no buffer", hint)
    elif isinstance(arg, StateArg):
        if arg.state not in scope.manifest.states:
            hint = scope.names["state"].hint(arg.state)
            yield Found(STATE_UNKNOWN, (*path, "state"), f"`{arg.state}` is no state", hint)
    elif isinstance(arg, Sym):
        if arg.sym not in scope.manifest.symbols:
            hint = scope.names["symbol"].hint(arg.sym)
            yield Found(SYMBOL_UNKNOWN, (*path, "sym"), f"`{arg.sym}` is no symbol", hint)
    elif isinstance(arg, ExprArg):
        for kind, place, what in faults(arg.expr, (*path, "expr"), scope.manifest.symbols):
            if kind == "symbol":
                hint = scope.names["symbol"].hint(str(what))
                yield Found(SYMBOL_UNKNOWN, place, f"`{what}` is no symbol", hint)
            else:
                yield Found(values.FACTOR, place, f"{what} as a factor or divisor", "write 1 or more")


def _argument(
    scope: Scope, program: str, arg: DispatchArg, param: Param, alignment: int, path: Path
) -> Iterator[Found]:
    """One argument, all of whose names are known, against its parameter."""
    if isinstance(arg, BufferArg):
        if param.dtype is None:
            yield _kind(f"the buffer `{arg.buf}`", param, path)
        else:
            yield from addresses.buffer(scope, arg, param, alignment, path)
    elif isinstance(arg, StateArg):
        if param.scalar is not None:
            yield _kind(f"the state `{arg.state}`", param, path)
        else:
            yield from addresses.state(scope, arg, param, alignment, path)
    elif param.scalar is None:
        yield _kind("a number", param, path)
    elif isinstance(arg, Sym | ExprArg):
        yield from values.computed(arg, param.scalar, scope.ranges.programs[program], path)
    else:
        yield from values.literal(arg, param.scalar, path)


def _kind(given: str, param: Param, path: Path) -> Found:
    wanted = "a number" if param.scalar is not None else "a state" if param.dtype is None else "a buffer"
    return Found(ARGUMENT_KIND, path, f"{given} for `{param}`", f"give {wanted}")


CODES = (
    KERNEL_UNKNOWN, BUFFER_UNKNOWN, STATE_UNKNOWN, SYMBOL_UNKNOWN, ARGUMENT_COUNT, ARGUMENT_KIND,
    *addresses.CODES, *values.CODES, *reach.CODES,
)  # fmt: skip
