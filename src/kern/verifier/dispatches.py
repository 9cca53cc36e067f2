"""Rule 7: dispatches against the kernels they call: names, number and kind of arguments."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Final, cast

from kern.manifest.counts import counted
from kern.manifest.diagnostics import Code, Diagnostic, Example, Path
from kern.manifest.expressions import Sym
from kern.manifest.operators import operator_of
from kern.manifest.params import Param
from kern.manifest.types import BufferArg, Dispatch, DispatchArg, ExprArg, Literals, StateArg
from kern.verifier import aliasing, operand_bounds, pointer_args, scalar_args
from kern.verifier.example import edit
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
    "A dispatch names a kernel declared in `kernels`, not the symbol in a kernel file. Declare the kernel, or fix its "
    "name.",
    edit(f"{_SCALE}/kernel", '"scale_f32"', '"scale"'),
)
BUFFER_UNKNOWN = Code(
    "K0702",
    "unknown buffer",
    "An argument names a buffer declared in `buffers`. The scratch of a kernel is not a buffer.",
    edit(f"{_SCALE}/args/1/buf", '"mix"', '"mixed"'),
)
STATE_UNKNOWN = Code(
    "K0703",
    "unknown state",
    "An argument names a state declared in `states`. Buffers are named by `buf`.",
    edit(f"{_RECORD}/args/1/state", '"past"', '"history"'),
)
SYMBOL_UNKNOWN = Code(
    "K0704",
    "unknown symbol in an argument",
    "A scalar argument is computed from symbols declared in `symbols`; their bounds prove that it fits its type. "
    "Declare the symbol, or fix its name.",
    edit(f"{_RECORD}/args/2/sym", '"begin"', '"start"'),
)
ARGUMENT_COUNT = Code(
    "K0705",
    "wrong number of dispatch arguments",
    "A dispatch has one argument for each parameter of the kernel's interface, in the same order. The parameters of "
    "its steps do not count.",
    edit(f"{_SCALE}/args", '[{"buf": "scaled"}, {"buf": "mixed"}]',
         '[{"buf": "scaled"}, {"buf": "mixed"}, {"f32": 0.5}]'),
)  # fmt: skip
TOO_MANY_LAUNCHES = Code(
    "K0719",
    "too many launches",
    "A dispatch runs every step of its kernel, so a short file can ask for billions of launches. The launches of all "
    "programs together may have 1,048,576 arguments, counting one more for each launch: a hundred times what large "
    "models need. Give a kernel fewer steps, or dispatch it less often.",
    Example(
        {
            "/kernels/record/impl/steps": f"[{', '.join([_RECORD_STEP] * 512)}]",
            "/programs/fill/dispatches": f"[{', '.join([_FIRST, _SECOND, *[_THIRD] * 410])}]",
        },
        {},
    ),
)


def check(scope: Scope, broken: Container[str]) -> Iterator[Diagnostic]:
    """Rule 7. The steps of `broken` kernels are not checked against their dispatches."""
    manifest = scope.manifest
    of_kernel = {
        name: sum(1 + len(step.args) for step in kernel.impl.steps) for name, kernel in manifest.kernels.items()
    }
    dispatches = (dispatch for program in manifest.programs.values() for dispatch in program.dispatches)
    launched = sum(of_kernel.get(dispatch.kernel, 0) for dispatch in dispatches)
    if launched > MAX_LAUNCHED:
        message = f"the launches of all programs have {launched:,} arguments; the limit is {MAX_LAUNCHED:,}"
        yield TOO_MANY_LAUNCHES.at(("programs",), message, "give a kernel fewer steps, or dispatch it less often")
    operators = {
        name: [step for step in kernel.impl.steps if operator_of(step) is not None]
        for name, kernel in manifest.kernels.items()
        if name not in broken and launched <= MAX_LAUNCHED
    }
    for program, body in manifest.programs.items():
        for index, dispatch in enumerate(body.dispatches):
            path: Path = ("programs", program, "dispatches", index)
            errors = _dispatch(scope, program, dispatch, path) or aliasing.check(scope.accesses[program][index], path)
            yield from errors
            if not errors and (steps := operators.get(dispatch.kernel)):
                yield from operand_bounds.check(scope, program, dispatch, steps, path)


def _dispatch(scope: Scope, program: str, dispatch: Dispatch, path: Path) -> list[Diagnostic]:
    """The errors in a dispatch's references and arguments, each argument by itself."""
    kernel = scope.manifest.kernels.get(dispatch.kernel)
    path, errors = (*path, "args"), list[Diagnostic]()
    if kernel is not None and len(kernel.params) == len(dispatch.args):
        ranges, alignments = scope.ranges.programs[program], scope.alignments[dispatch.kernel]
        for index, (arg, param) in enumerate(zip(dispatch.args, kernel.params, strict=True)):
            errors += _argument(scope, ranges, arg, param, alignments[index], (*path, index))
        return errors
    if kernel is None:
        hint = scope.names["kernel"].hint(dispatch.kernel)
        errors.append(KERNEL_UNKNOWN.at((*path[:-1], "kernel"), f"unknown kernel `{dispatch.kernel}`", hint))
    else:
        message = f"{counted(len(dispatch.args), 'argument')}; `{dispatch.kernel}` takes {len(kernel.params)}"
        errors.append(ARGUMENT_COUNT.at(path, message, "give one argument for each parameter"))
    for index, arg in enumerate(dispatch.args):
        errors += _unknown(scope, arg, (*path, index))
    return errors


def _unknown(scope: Scope, arg: DispatchArg, path: Path) -> Sequence[Diagnostic]:
    """Names that are not declared, and factors below 1, whatever the parameter."""
    # `type … is`: an isinstance that fails is slow for pydantic classes, and this runs for every argument.
    if type(arg) is BufferArg:
        if arg.buf not in scope.manifest.buffers:
            hint = scope.names["buffer"].hint(arg.buf)
            return (BUFFER_UNKNOWN.at((*path, "buf"), f"unknown buffer `{arg.buf}`", hint),)
    elif type(arg) is StateArg:
        if arg.state not in scope.manifest.states:
            hint = scope.names["state"].hint(arg.state)
            return (STATE_UNKNOWN.at((*path, "state"), f"unknown state `{arg.state}`", hint),)
    elif type(arg) is Sym:
        return scope.expression_errors(arg, (*path, "sym"), SYMBOL_UNKNOWN, scalar_args.FACTOR)
    elif type(arg) is ExprArg:
        return scope.expression_errors(arg.expr, (*path, "expr"), SYMBOL_UNKNOWN, scalar_args.FACTOR)
    return ()


def _argument(
    scope: Scope, ranges: SymbolRanges, arg: DispatchArg, param: Param, alignment: int, path: Path
) -> Sequence[Diagnostic]:
    """The errors in one argument for its parameter."""
    error: Diagnostic | None
    if type(arg) is BufferArg and arg.buf in scope.manifest.buffers:
        error = pointer_args.buffer(scope, arg, param, alignment, path)
    elif type(arg) is StateArg and arg.state in scope.manifest.states:
        error = pointer_args.state(scope, arg, param, alignment, path)
    elif errors := _unknown(scope, arg, path):
        return errors
    elif param.scalar is None:
        error = pointer_args.kind("a number", param, path)
    elif type(arg) is Sym:
        error = scalar_args.computed(arg, param.scalar, ranges, path)
    elif type(arg) is ExprArg:
        error = scalar_args.computed(arg.expr, param.scalar, ranges, path)
    else:
        codes = scalar_args.LITERAL_TYPE, scalar_args.LITERAL_RANGE
        error = scalar_args.literal(cast("Literals", arg), param.scalar, path, *codes)
    return () if error is None else (error,)


CODES = (
    KERNEL_UNKNOWN, BUFFER_UNKNOWN, STATE_UNKNOWN, SYMBOL_UNKNOWN, ARGUMENT_COUNT, TOO_MANY_LAUNCHES,
    *pointer_args.CODES, *scalar_args.CODES, *operand_bounds.CODES, *aliasing.CODES,
)  # fmt: skip
