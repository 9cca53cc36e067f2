"""Rule 6: an implementation's steps against the kernel's interface and its scratch."""

from __future__ import annotations

from collections.abc import Iterator

from kern.manifest.arrays import ALIGNMENT
from kern.manifest.counts import counted
from kern.manifest.diagnostics import Code, Diagnostic, Example, Path
from kern.manifest.params import Param
from kern.manifest.types import Arg, Kernel, Literals, ScratchArg, Step
from kern.verifier.example import edit
from kern.verifier.externs import launch_params
from kern.verifier.scalars import literal_fits, range_of
from kern.verifier.scope import Scope
from kern.verifier.wiring import out_of_range, wired

_SCALE = "/kernels/scale/impl/steps/0"
_PARTIAL = "/kernels/summarize/impl/steps/0"
_FINAL = "/kernels/summarize/impl/steps/1"

ARG_OUT_OF_RANGE = Code(
    "K0601",
    "interface argument that is not there",
    '`{"arg": i}` forwards parameter i of the kernel\'s interface, counted from 0. Take an index that the interface '
    "has, or add the parameter to it.",
    edit(f"{_SCALE}/args/2", '{"arg": 3}', '{"arg": 2}'),
)
ARG_TYPE = Code(
    "K0602",
    "forwarded argument of another type",
    "What a step forwards must be of the very type its kernel takes there: the same scalar, a pointer to the same "
    "dtype, or `ptr` to `ptr`. Nothing is converted between an interface and a launch.",
    edit(f"{_SCALE}/params/2", '"i32"', '"f32"'),
)
WRITE_THROUGH_IN = Code(
    "K0603",
    "write through an `in` parameter",
    "The interface promises callers that this argument is only read, and a step writes through it. Data flow is "
    "checked by the interface alone, so a broken promise would go unseen. Make the parameter `inout`, or the step's "
    "`in`.",
    edit(f"{_SCALE}/params/1", '"inout buffer<f32>"', '"in buffer<f32>"'),
)
OUT_NEVER_WRITTEN = Code(
    "K0604",
    "`out` parameter that no step writes",
    "The interface promises that this argument holds a result afterwards, and no step writes it. Later dispatches "
    "would read whatever the memory held. Forward the argument to a step that writes it, or take it out of the "
    "interface.",
    edit(f"{_FINAL}/args/0", '{"arg": 1}', '{"arg": 0}'),
)
OUT_READ_FIRST = Code(
    "K0605",
    "`out` parameter read before it is written",
    "`out` promises that what was there before does not matter. A step that reads it before another has written it "
    "would take in whatever was left there. Make the parameter `inout` if its old content counts.",
    edit(f"{_FINAL}/params/0", '"inout buffer<f32>"', '"out buffer<f32>"'),
)
INOUT_NEVER_WRITTEN = Code(
    "K0606",
    "`inout` parameter that no step writes",
    "The interface says that the kernel changes this argument, and no step does. Declare it `in`, so that callers may "
    "pass weights and inputs and the data flow tells the truth.",
    edit(f"{_FINAL}/params/1", '"in buffer<f32>"', '"inout buffer<f32>"'),
)
SCRATCH_UNKNOWN = Code(
    "K0607",
    "unknown scratch",
    "A step names scratch that the same implementation declares; other kernels' scratch is out of reach. Declare it "
    "in the kernel's own `scratch`, or mend its name.",
    edit(f"{_FINAL}/args/2", '{"scratch": "parts"}', '{"scratch": "part"}'),
)
SCRATCH_DTYPE = Code(
    "K0608",
    "scratch of another dtype",
    "A scratch goes only to parameters that are pointers to its own dtype. A bare `ptr` is for state.",
    edit(f"{_FINAL}/params/2", '"in buffer<i32>"', '"in buffer<f32>"'),
)
SCRATCH_MISALIGNED = Code(
    "K0609",
    "misaligned scratch",
    "An offset into a scratch is a multiple of its dtype's size, and of the parameter's `align` where it has one. A "
    "scratch starts at a multiple of 256 bytes and no better, so more than that cannot be asked for.",
    edit(f"{_FINAL}/args/3", '{"scratch": "count", "offset": 2}', '{"scratch": "count", "offset": 4}'),
)
SCRATCH_OUT_OF_BOUNDS = Code(
    "K0610",
    "offset outside the scratch",
    "An offset is at least 0 and less than the bytes reserved for the scratch, at the upper bounds of its symbols "
    "over all programs that dispatch the kernel. An address further on belongs to something else.",
    edit(f"{_FINAL}/args/3", '{"scratch": "count", "offset": 32}', '{"scratch": "count", "offset": 28}'),
)
SCRATCH_READ_FIRST = Code(
    "K0611",
    "scratch read before it is written",
    "Scratch holds nothing when a kernel starts: others use the same memory. Write it in an earlier step, or declare "
    "it `keep`, which makes it private, zero at load and kept between executions.",
    edit("/kernels/summarize/impl/scratch/count/keep", "false", "true"),
)
SCRATCH_UNUSED = Code(
    "K0612",
    "unused scratch",
    "Memory is reserved for scratch that no step is given. Take it out, or pass it on.",
    Example(
        {"/kernels/scale/impl/scratch": '{"spare": {"dtype": "f32", "shape": [128]}}'},
        {
            "/kernels/scale/impl/scratch": '{"spare": {"dtype": "f32", "shape": [128]}}',
            "/kernels/scale/impl/steps/0/params/3": '"out buffer<f32>"',
            "/kernels/scale/impl/steps/0/args/3": '{"scratch": "spare"}',
        },
    ),
)
LITERAL_TYPE = Code(
    "K0613",
    "step literal of another type",
    "A literal is written with the type of the parameter it is for, and nothing is converted. So what is written is "
    "what the kernel gets, bit for bit.",
    edit(f"{_SCALE}/args/3", '{"u32": 128}', '{"i32": 128}'),
)
LITERAL_RANGE = Code(
    "K0614",
    "step literal out of range",
    "A literal's value is one that its type can hold; an f32 stays finite when rounded to single precision. Any other "
    "would wrap around or become infinite unseen.",
    edit(f"{_SCALE}/args/3", '{"i32": 2147483648}', '{"i32": 2147483647}'),
)

KEPT_NEVER_WRITTEN = Code(
    "K0615",
    "kept scratch that no step writes",
    "Kept scratch is zero at load, and nothing but the kernel's own steps can change it: one that they only read would "
    "be zero for ever. Let a step write it, or give the steps a literal.",
    edit(f"{_FINAL}/params/3", '"in buffer<i32>"', '"inout buffer<i32>"'),
)
SCRATCH_NEVER_READ = Code(
    "K0616",
    "scratch that no step reads",
    "Scratch cannot be seen from outside its kernel, so a step that writes nothing but scratch that no step reads does "
    "nothing. A step that must be given somewhere to put a second result, which nobody wants, is not refused.",
    edit("/kernels/summarize/impl/steps/1/args/2", '{"arg": 2}', '{"scratch": "part"}'),
)


def check(scope: Scope) -> Iterator[Diagnostic]:
    """Everything of rule 6."""
    for name, kernel in scope.manifest.kernels.items():
        path: Path = ("kernels", name)
        for index, step in enumerate(kernel.impl.steps):
            yield from _step(scope, name, step, (*path, "impl", "steps", index))
        if wired(kernel):
            yield from _Flow(kernel, path).check()


def _step(scope: Scope, name: str, step: Step, path: Path) -> Iterator[Diagnostic]:
    kernel, params = scope.manifest.kernels[name], launch_params(step)
    if len(step.args) != len(params):
        return
    for index, (arg, param) in enumerate(zip(step.args, params, strict=True)):
        place = (*path, "args", index)
        if isinstance(arg, Arg):
            yield from _forwarded(kernel, arg, param, place)
        elif isinstance(arg, ScratchArg):
            if param.is_pointer:
                yield from _scratch(scope, name, arg, param, place)
        elif not param.is_pointer:
            yield from _literal(arg, param, place)


def _forwarded(kernel: Kernel, arg: Arg, param: Param, path: Path) -> Iterator[Diagnostic]:
    if out_of_range(arg, kernel):
        count = len(kernel.params)
        message = f"interface parameter {arg.arg}, and the interface has {count}"
        yield ARG_OUT_OF_RANGE.at(path, message, f"name one of the {count}, counted from 0")
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
        yield SCRATCH_UNKNOWN.at(path, f"`{arg.scratch}` is no scratch of `{name}`", hint)
        return
    size = scope.scratch_bytes[name][arg.scratch]
    # Reserved bytes bound the offset, which is a constant, also where a call's array is smaller: memory stays safe.
    if scratch.dtype != param.dtype:
        message = f"`{arg.scratch}` is {scratch.dtype}, and this launch takes `{param}`"
        yield SCRATCH_DTYPE.at(path, message, "pass another scratch, or give both the same dtype")
    elif arg.offset < 0 or (size is not None and arg.offset >= size):
        within = f"the {counted(size, 'byte')} of " if size is not None else ""
        message = f"offset {arg.offset} is outside {within}`{arg.scratch}`"
        yield SCRATCH_OUT_OF_BOUNDS.at(path, message, "make the offset smaller, or the scratch larger")
    elif param.alignment > ALIGNMENT or arg.offset % param.alignment:
        message = f"`{param}` needs a multiple of {param.alignment} bytes; this is a multiple of {ALIGNMENT}"
        message += f" plus {arg.offset}" if arg.offset else ""
        yield SCRATCH_MISALIGNED.at(path, message, f"move it to a multiple of {param.alignment}")


def _literal(arg: Literals, param: Param, path: Path) -> Iterator[Diagnostic]:
    if arg.scalar != param.scalar:
        yield LITERAL_TYPE.at(path, f"a literal {arg.scalar} for `{param}`", f"write it as {param}")
    elif not literal_fits(arg):
        message = f"{arg.value} is no {arg.scalar}"
        yield LITERAL_RANGE.at((*path, arg.scalar), message, f"{arg.scalar} holds {range_of(arg.scalar)}")


class _Flow:
    """The order of reads and writes through one implementation, for steps whose arguments all resolve."""

    def __init__(self, kernel: Kernel, path: Path) -> None:
        self.kernel = kernel
        self.path = path
        self.forwarded: set[int] = set()
        self.written: set[int] = set()
        self.scratch_used: set[str] = set()
        self.scratch_changed: set[str] = set()
        self.scratch_read: set[str] = set()
        self.scratch_written = {name for name, scratch in kernel.impl.scratch.items() if scratch.keep}

    def check(self) -> Iterator[Diagnostic]:
        for index, step in enumerate(self.kernel.impl.steps):
            yield from self._reads(step, (*self.path, "impl", "steps", index, "args"))
            self._writes(step)
        yield from self._never_written()
        wanted = self._wanted()
        for name, scratch in self.kernel.impl.scratch.items():
            place = (*self.path, "impl", "scratch", name)
            if name not in self.scratch_used:
                yield SCRATCH_UNUSED.at(place, f"no step uses `{name}`", "take it out", anchor="key")
            elif scratch.keep and name not in self.scratch_changed:
                message = f"no step writes `{name}`, so it is always zero"
                yield KEPT_NEVER_WRITTEN.at(place, message, "write it in a step, or take it out", anchor="key")
            elif name not in wanted:
                message = f"no step reads `{name}`, and what writes it writes nothing else"
                yield SCRATCH_NEVER_READ.at(place, message, "read it, or take it and its step out", anchor="key")

    def _wanted(self) -> set[str]:
        """The scratch that is read, or that comes with another result of a step."""
        wanted = set(self.scratch_read)
        for step in self.kernel.impl.steps:
            written = [arg for arg, param in zip(step.args, launch_params(step), strict=True) if param.writes]
            scratch = {arg.scratch for arg in written if isinstance(arg, ScratchArg)}
            if scratch & self.scratch_read or any(isinstance(arg, Arg) for arg in written):
                wanted |= scratch
        return wanted

    def _reads(self, step: Step, path: Path) -> Iterator[Diagnostic]:
        for index, (arg, param) in enumerate(zip(step.args, launch_params(step), strict=True)):
            if not param.reads:
                continue
            if isinstance(arg, ScratchArg):
                self.scratch_read.add(arg.scratch)
            if isinstance(arg, ScratchArg) and arg.scratch not in self.scratch_written:
                self.scratch_written.add(arg.scratch)
                message = f"no earlier step wrote `{arg.scratch}`"
                yield SCRATCH_READ_FIRST.at((*path, index), message, "write it first, or declare it `keep`")
            elif isinstance(arg, Arg) and arg.arg not in self.written and self._is_out(arg.arg):
                self.written.add(arg.arg)
                message = f"interface parameter {arg.arg} is `out`, and no earlier step wrote it"
                yield OUT_READ_FIRST.at((*path, index), message, "write it first, or make it `inout`")

    def _is_out(self, index: int) -> bool:
        return self.kernel.params[index].direction == "out"

    def _writes(self, step: Step) -> None:
        for arg, param in zip(step.args, launch_params(step), strict=True):
            if isinstance(arg, Arg):
                self.forwarded.add(arg.arg)
                if param.writes:
                    self.written.add(arg.arg)
            elif isinstance(arg, ScratchArg):
                self.scratch_used.add(arg.scratch)
                if param.writes:
                    self.scratch_written.add(arg.scratch)
                    self.scratch_changed.add(arg.scratch)

    def _never_written(self) -> Iterator[Diagnostic]:
        for index, param in enumerate(self.kernel.params):
            if not param.writes or index in self.written:
                continue
            place = (*self.path, "params", index)
            code = OUT_NEVER_WRITTEN if param.direction == "out" else INOUT_NEVER_WRITTEN
            yield code.at(place, f"no step writes `{param}`", "forward it to a step that writes it, or make it `in`")


CODES = (
    ARG_OUT_OF_RANGE, ARG_TYPE, WRITE_THROUGH_IN, OUT_NEVER_WRITTEN, OUT_READ_FIRST, INOUT_NEVER_WRITTEN,
    SCRATCH_UNKNOWN, SCRATCH_DTYPE, SCRATCH_MISALIGNED, SCRATCH_OUT_OF_BOUNDS, SCRATCH_READ_FIRST, SCRATCH_UNUSED,
    LITERAL_TYPE, LITERAL_RANGE, KEPT_NEVER_WRITTEN, SCRATCH_NEVER_READ,
)  # fmt: skip
