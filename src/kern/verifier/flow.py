"""Rule 6, order: what an implementation's steps read and write of its interface and scratch, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from kern.manifest.diagnostics import Code, Diagnostic, Example, Path
from kern.manifest.types import Arg, Kernel, ScratchArg, Step
from kern.verifier.example import edit
from kern.verifier.operators import launch_params
from kern.verifier.wiring import wired

_SCALE = "/kernels/scale/impl/steps/0"
_FINAL = "/kernels/summarize/impl/steps/1"

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


class Flow:
    """The order of reads and writes through one implementation, for steps whose forwarded arguments all resolve."""

    def __init__(self, kernel: Kernel, path: Path) -> None:
        self.kernel = kernel
        self.path = path
        self.wired = wired(kernel)  # a scratch that is misnamed may be any of those declared
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
        if self.wired:
            yield from self._scratch()

    def _scratch(self) -> Iterator[Diagnostic]:
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
                if not self.wired:
                    continue
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
    OUT_NEVER_WRITTEN, OUT_READ_FIRST, INOUT_NEVER_WRITTEN, SCRATCH_READ_FIRST, SCRATCH_UNUSED, KEPT_NEVER_WRITTEN,
    SCRATCH_NEVER_READ,
)  # fmt: skip
