"""Rule 7: dispatches against the kernels they call: names, number and kind of arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from kern.manifest.counts import counted
from kern.manifest.diagnostics import Code, Diagnostic, Example, Path
from kern.manifest.expressions import Sym
from kern.manifest.params import Param
from kern.manifest.types import BufferArg, Dispatch, DispatchArg, ExprArg, Literals, StateArg
from kern.verifier import aliasing, operand_bounds, pointer_args, scalar_args
from kern.verifier.example import edit
from kern.verifier.expressions import faults
from kern.verifier.found import Found
from kern.verifier.ranges import SymbolRanges
from kern.verifier.scope import Scope

MAX_LAUNCHED: Final = 2**20
"""Most arguments of the launches of all programs together, each launch counting as one more."""

_RECORD_STEP = (
    '{"symbol": "record_f32", "params": ["in buffer<f32>", "inout ptr", "i32", "u32"], "block": [256, 1, 1], '
    '"grid": [1, 1, 1], "args": [{"arg": 0}, {"arg": 1}, {"arg": 2}, {"arg": 3}]}'
)
_FIRST = (
    '{"kernel": "product", "args": [{"buf": "mixed"}, {"buf": "signal"}, {"buf": "filter"}, {"sym": "rows"}, '
    '{"i32": 128}, {"i32": 64}]}'
)
_SECOND = '{"kernel": "scale", "args": [{"buf": "scaled"}, {"buf": "mixed"}, {"f32": 0.5}]}'
_THIRD = '{"kernel": "record", "args": [{"buf": "scaled"}, {"state": "history"}, {"i32": 0}, {"u32": 128}]}'
_SCALE = "/programs/fill/dispatches/1"
_RECORD = "/programs/fill/dispatches/2"

KERNEL_UNKNOWN = Code(
    "K0701",
    "unknown kernel",
    "A dispatch calls a kernel that `kernels` declares, by its name there and not by the symbol in its file. Declare "
    "the kernel, or fix its name.",
    edit(f"{_SCALE}/kernel", '"scale_f32"', '"scale"'),
)
BUFFER_UNKNOWN = Code(
    "K0702",
    "unknown buffer",
    "An argument names a buffer that `buffers` declares. A kernel's scratch is not one of them.",
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
    "A scalar argument is computed from symbols that `symbols` declares; their bounds show that it fits. Declare the "
    "symbol, or fix its name.",
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
    "of its type. An address passed as a number, or a number as an address, would go wrong only on the device.",
    edit(f"{_SCALE}/args/2", '{"buf": "mixed"}', '{"f32": 0.5}'),
)


TOO_MANY_LAUNCHES = Code(
    "K0719",
    "too many launches",
    "A dispatch makes every launch of its kernel, so a short file can ask for billions. All dispatches of all programs "
    "together may make launches of 1,048,576 arguments, counting one more for each launch: a hundred times what large "
    "models take. Give a kernel fewer steps, or dispatch it less often.",
    Example(
        {
            "/kernels/record/impl/steps": f"[{', '.join([_RECORD_STEP] * 512)}]",
            "/programs/fill/dispatches": f"[{', '.join([_FIRST, _SECOND, *[_THIRD] * 410])}]",
        },
        {},
    ),
)


def check(scope: Scope) -> Iterator[Diagnostic]:
    """Everything of rule 7."""
    manifest = scope.manifest
    of_kernel = {
        name: sum(1 + len(step.args) for step in kernel.impl.steps) for name, kernel in manifest.kernels.items()
    }
    dispatches = (dispatch for program in manifest.programs.values() for dispatch in program.dispatches)
    launched = sum(of_kernel.get(dispatch.kernel, 0) for dispatch in dispatches)
    if launched > MAX_LAUNCHED:
        message = f"the launches of all programs have {launched:,} arguments, more than {MAX_LAUNCHED:,}"
        yield TOO_MANY_LAUNCHES.at(("programs",), message, "give a kernel fewer steps, or dispatch it less often")
    for program, body in manifest.programs.items():
        for index, dispatch in enumerate(body.dispatches):
            for found in _dispatch(scope, program, dispatch, launched <= MAX_LAUNCHED):
                yield found.under(("programs", program, "dispatches", index))


def _dispatch(scope: Scope, program: str, dispatch: Dispatch, launches: bool) -> Iterator[Found]:
    """One dispatch; with `launches`, also the operators behind it."""
    interface = scope.interfaces.get(dispatch.kernel)
    if interface is None:
        hint = scope.names["kernel"].hint(dispatch.kernel)
        yield Found(KERNEL_UNKNOWN, ("kernel",), f"unknown kernel `{dispatch.kernel}`", hint)
    elif len(interface.params) != len(dispatch.args):
        message = f"{counted(len(dispatch.args), 'argument')}, and `{dispatch.kernel}` takes {len(interface.params)}"
        yield Found(ARGUMENT_COUNT, ("args",), message, "give one for each parameter")
        interface = None
    if interface is None:
        for index, arg in enumerate(dispatch.args):
            yield from _unknown(scope, arg, ("args", index))
        return
    sound, ranges = True, scope.ranges.programs[program]
    for index, arg in enumerate(dispatch.args):
        found = _argument(scope, ranges, arg, interface.params[index], interface.alignments[index])
        if found is not None:
            sound, path = False, ("args", index)
            yield from _unknown(scope, arg, path) if found is UNKNOWN else (found.within(path),)
    if sound:
        for found in aliasing.check(dispatch, interface):
            sound = False
            yield found
    if sound and interface.externs and launches:
        yield from operand_bounds.check(scope, program, dispatch, interface)


def _unknown(scope: Scope, arg: DispatchArg, path: Path) -> Iterator[Found]:
    """Names that are not declared, and factors below 1, whatever the parameter."""
    if isinstance(arg, BufferArg):
        if arg.buf not in scope.manifest.buffers:
            hint = scope.names["buffer"].hint(arg.buf)
            yield Found(BUFFER_UNKNOWN, (*path, "buf"), f"unknown buffer `{arg.buf}`", hint)
    elif isinstance(arg, StateArg):
        if arg.state not in scope.manifest.states:
            hint = scope.names["state"].hint(arg.state)
            yield Found(STATE_UNKNOWN, (*path, "state"), f"unknown state `{arg.state}`", hint)
    elif isinstance(arg, Sym | ExprArg):
        place = (*path, "sym") if isinstance(arg, Sym) else (*path, "expr")
        expr = arg.expr if isinstance(arg, ExprArg) else arg
        for kind, where, what in faults(expr, place, scope.manifest.symbols):
            if kind == "symbol":
                hint = scope.names["symbol"].hint(str(what))
                yield Found(SYMBOL_UNKNOWN, where, f"unknown symbol `{what}`", hint)
            else:
                yield Found(scalar_args.FACTOR, where, f"{what} as a factor or divisor", "write 1 or more")


def _argument(scope: Scope, ranges: SymbolRanges, arg: DispatchArg, param: Param, alignment: int) -> Found | None:
    """The first fault of one argument; UNKNOWN where a name in it is not declared."""
    # `type … is`: an isinstance that fails is slow for pydantic classes, and this runs for every argument.
    if type(arg) is BufferArg:
        if arg.buf not in scope.manifest.buffers:
            return UNKNOWN
        if param.dtype is None:
            return _kind(f"the buffer `{arg.buf}`", param)
        return pointer_args.buffer(scope, arg, param, alignment)
    if type(arg) is StateArg:
        if arg.state not in scope.manifest.states:
            return UNKNOWN
        if param.scalar is not None:
            return _kind(f"the state `{arg.state}`", param)
        return pointer_args.state(scope, arg, param, alignment)
    expr = arg if type(arg) is Sym else arg.expr if type(arg) is ExprArg else None
    if expr is not None and any(True for _ in faults(expr, (), scope.manifest.symbols)):
        return UNKNOWN
    if param.scalar is None:
        return _kind("a number", param)
    if expr is not None:
        return scalar_args.computed(expr, param.scalar, ranges)
    return scalar_args.literal(cast("Literals", arg), param.scalar)


def _kind(given: str, param: Param) -> Found:
    wanted = "a number" if param.scalar is not None else "a state" if param.dtype is None else "a buffer"
    return Found(ARGUMENT_KIND, (), f"{given} for `{param}`", f"give {wanted}")


UNKNOWN = Found(BUFFER_UNKNOWN, (), "", "")
"""Stands for the faults that `_unknown` tells."""

CODES = (
    KERNEL_UNKNOWN, BUFFER_UNKNOWN, STATE_UNKNOWN, SYMBOL_UNKNOWN, ARGUMENT_COUNT, ARGUMENT_KIND,
    TOO_MANY_LAUNCHES, *pointer_args.CODES, *scalar_args.CODES, *operand_bounds.CODES, *aliasing.CODES,
)  # fmt: skip
