"""Rule 6: an implementation's steps against the kernel's interface and its scratch."""

from __future__ import annotations

from collections.abc import Iterator

from kern.manifest.arrays import ALIGNMENT
from kern.manifest.diagnostics import Code, Diagnostic, Path
from kern.manifest.operators import launch_params
from kern.manifest.params import Param
from kern.manifest.types import Arg, Kernel, ScratchArg, Step
from kern.verifier.example import edit
from kern.verifier.pointer_args import inside, outside
from kern.verifier.scalar_args import literal
from kern.verifier.scope import Scope

_SCALE = "/kernels/scale/impl/steps/0"
_PARTIAL = "/kernels/summarize/impl/steps/0"
_FINAL = "/kernels/summarize/impl/steps/1"

ARG_OUT_OF_RANGE = Code(
    "K0601",
    "unknown interface parameter",
    '`{"arg": i}` forwards parameter i of the kernel\'s interface, counted from 0. Use an index of the '
    "interface, or add the parameter to it.",
    edit(f"{_SCALE}/args/2", '{"arg": 3}', '{"arg": 2}'),
)
ARG_TYPE = Code(
    "K0602",
    "forwarded argument of the wrong type",
    "A forwarded argument must have the type of the launch's parameter: the same scalar, a pointer to the same dtype, "
    "or `ptr` for `ptr`. Nothing is converted between an interface and a launch.",
    edit(f"{_SCALE}/params/2", '"i32"', '"f32"'),
)
WRITE_THROUGH_IN = Code(
    "K0603",
    "write through an `in` parameter",
    "The interface promises callers that this argument is only read, and a step writes through it. Data flow is "
    "checked by the interface alone and would miss the write. Make the parameter `inout`, or the step's `in`.",
    edit(f"{_SCALE}/params/1", '"inout buffer<f32>"', '"in buffer<f32>"'),
)
SCRATCH_UNKNOWN = Code(
    "K0607",
    "unknown scratch",
    "A step names scratch declared in the same implementation; the scratch of other kernels is not accessible. Declare "
    "it in the kernel's `scratch`, or fix its name.",
    edit(f"{_FINAL}/args/2", '{"scratch": "parts"}', '{"scratch": "part"}'),
)
SCRATCH_DTYPE = Code(
    "K0608",
    "scratch of the wrong dtype",
    "A scratch may be passed only to parameters that are pointers to its dtype. A `ptr` takes a state.",
    edit(f"{_FINAL}/params/2", '"in buffer<i32>"', '"in buffer<f32>"'),
)
SCRATCH_MISALIGNED = Code(
    "K0609",
    "misaligned scratch",
    "An offset into a scratch is a multiple of the size of its dtype, and of the parameter's `align` if it has one. A "
    "scratch starts at a multiple of 256 bytes; a larger alignment is not available.",
    edit(f"{_FINAL}/args/3", '{"scratch": "count", "offset": 2}', '{"scratch": "count", "offset": 4}'),
)
SCRATCH_OUT_OF_BOUNDS = Code(
    "K0610",
    "offset outside the scratch",
    "An offset is at least 0 and less than the bytes reserved for the scratch, at the upper bounds of its symbols over "
    "all programs that dispatch the kernel. Memory beyond it belongs to other arrays.",
    edit(f"{_FINAL}/args/3", '{"scratch": "count", "offset": 32}', '{"scratch": "count", "offset": 28}'),
)
LITERAL_TYPE = Code(
    "K0613",
    "step literal of the wrong type",
    "A literal has the type of its parameter. Nothing is converted: the kernel gets exactly what is written.",
    edit(f"{_SCALE}/args/3", '{"u32": 128}', '{"i32": 128}'),
)
LITERAL_RANGE = Code(
    "K0614",
    "step literal out of range",
    "A literal fits its type; an f32 stays finite when rounded to single precision. Other values would silently wrap "
    "around or become infinite.",
    edit(f"{_SCALE}/args/3", '{"i32": 2147483648}', '{"i32": 2147483647}'),
)


def check(scope: Scope) -> Iterator[Diagnostic]:
    """Rule 6 for each argument of each step."""
    for name, kernel in scope.manifest.kernels.items():
        for index, step in enumerate(kernel.impl.steps):
            yield from _step(scope, name, step, ("kernels", name, "impl", "steps", index))


def _step(scope: Scope, name: str, step: Step, path: Path) -> Iterator[Diagnostic]:
    kernel, params = scope.manifest.kernels[name], launch_params(step)
    if len(step.args) != len(params):
        return
    for index, (arg, param) in enumerate(zip(step.args, params, strict=True)):
        location = (*path, "args", index)
        if isinstance(arg, Arg):
            yield from _forwarded(kernel, arg, param, location)
        elif isinstance(arg, ScratchArg):
            if param.is_pointer:
                yield from _scratch(scope, name, arg, param, location)
        elif param.scalar is not None and (error := literal(arg, param.scalar, location, LITERAL_TYPE, LITERAL_RANGE)):
            yield error


def _forwarded(kernel: Kernel, arg: Arg, param: Param, path: Path) -> Iterator[Diagnostic]:
    if not 0 <= arg.arg < len(kernel.params):
        count = len(kernel.params)
        message = f"unknown interface parameter {arg.arg}; the interface has {count}"
        yield ARG_OUT_OF_RANGE.at(path, message, f"use one of the {count}, counted from 0")
        return
    interface = kernel.params[arg.arg]
    if interface.kind == param.kind and (interface.writes or not param.writes):
        return
    here = f"interface parameter {arg.arg} is `{interface}`, and parameter {path[-1]} of this launch"
    if interface.kind != param.kind:
        yield ARG_TYPE.at(path, f"{here} takes `{param}`", "forward another argument, or give both the same type")
    else:
        help = "make the interface's parameter `inout`, or the launch's `in`"
        yield WRITE_THROUGH_IN.at(path, f"{here} writes it as `{param}`", help)


def _scratch(scope: Scope, name: str, arg: ScratchArg, param: Param, path: Path) -> Iterator[Diagnostic]:
    declared = scope.manifest.kernels[name].impl.scratch
    scratch = declared.get(arg.scratch)
    if scratch is None:
        hint = scope.scratch_names[name].hint(arg.scratch)
        yield SCRATCH_UNKNOWN.at(path, f"`{name}` has no scratch `{arg.scratch}`", hint)
        return
    size = scope.scratch_bytes[name][arg.scratch]
    # The bytes reserved are the limit, since the offset is a constant: the array of a call may be smaller.
    if scratch.dtype != param.dtype:
        message = f"`{arg.scratch}` is {scratch.dtype}, and this launch takes `{param}`"
        yield SCRATCH_DTYPE.at(path, message, "pass another scratch, or give both the same dtype")
    elif arg.offset < 0 or (size is not None and arg.offset >= size):
        message, help = outside(arg.scratch, arg.offset, size), inside(arg.offset, size)
        yield SCRATCH_OUT_OF_BOUNDS.at(path, message, help if arg.offset < 0 else f"{help}, or make the scratch larger")
    elif param.alignment > ALIGNMENT or arg.offset % param.alignment:
        message = f"`{param}` needs a multiple of {param.alignment} bytes; this is a multiple of {ALIGNMENT}"
        message += f" plus {arg.offset}" if arg.offset else ""
        yield SCRATCH_MISALIGNED.at(path, message, f"move it to a multiple of {param.alignment}")


CODES = (
    ARG_OUT_OF_RANGE, ARG_TYPE, WRITE_THROUGH_IN, SCRATCH_UNKNOWN, SCRATCH_DTYPE, SCRATCH_MISALIGNED,
    SCRATCH_OUT_OF_BOUNDS, LITERAL_TYPE, LITERAL_RANGE,
)  # fmt: skip
