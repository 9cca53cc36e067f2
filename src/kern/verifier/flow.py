"""Rule 6, order: the reads and writes of interface parameters and scratch, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kern.manifest.diagnostics import Code, Diagnostic, Example, Path
from kern.manifest.effects import Access, step_accesses
from kern.manifest.types import Kernel
from kern.verifier.example import edit

Step = Sequence[Access]
"""The accesses of one step."""

_SCALE = "/kernels/scale/impl/steps/0"
_FINAL = "/kernels/summarize/impl/steps/1"

OUT_NEVER_WRITTEN = Code(
    "K0604",
    "`out` parameter that no step writes",
    "The interface promises that the kernel writes this argument, and no step does. Later dispatches would read "
    "whatever was in memory. Forward the argument to a step that writes it, or remove it from the interface.",
    edit(f"{_FINAL}/args/0", '{"arg": 1}', '{"arg": 0}'),
)
OUT_READ_FIRST = Code(
    "K0605",
    "`out` parameter read before it is written",
    "`out` promises that the kernel does not read the previous content, and this step does, since no earlier step has "
    "written the argument. Make the parameter `inout` if the previous content matters.",
    edit(f"{_FINAL}/params/0", '"inout buffer<f32>"', '"out buffer<f32>"'),
)
INOUT_NEVER_WRITTEN = Code(
    "K0606",
    "`inout` parameter that no step writes",
    "The interface says that the kernel writes this argument, and no step does. Declare it `in`, so that callers may "
    "pass weights and inputs.",
    edit(f"{_FINAL}/params/1", '"in buffer<f32>"', '"inout buffer<f32>"'),
)
SCRATCH_READ_FIRST = Code(
    "K0611",
    "scratch read before it is written",
    "Scratch has no content when a kernel starts: other kernels use the same memory. Write it in an earlier step, or "
    "declare it `keep`: then it is private, zero after loading, and kept between executions.",
    edit("/kernels/summarize/impl/scratch/count/keep", "false", "true"),
)
SCRATCH_UNUSED = Code(
    "K0612",
    "unused scratch",
    "Memory is reserved for scratch that no step uses. Remove it, or pass it to a step.",
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
    "Kept scratch is zero after loading, and only the steps of its kernel can change it: if they only read it, it is "
    "always zero. Let a step write it, or pass a literal.",
    edit(f"{_FINAL}/params/3", '"in buffer<i32>"', '"inout buffer<i32>"'),
)
SCRATCH_NEVER_READ = Code(
    "K0616",
    "scratch that no step reads",
    "Scratch is not visible outside its kernel, so a step that writes only scratch that no step reads has no effect. "
    "Unread scratch is accepted where it takes a second result of a step.",
    edit("/kernels/summarize/impl/steps/1/args/2", '{"arg": 2}', '{"scratch": "part"}'),
)


def check(kernel: Kernel, path: Path, scratch_resolves: bool) -> Iterator[Diagnostic]:
    """The order of reads and writes through one implementation, whose forwarded arguments all resolve.

    Without `scratch_resolves` an unknown scratch may be any of those declared, so scratch is not checked.
    """
    steps = [step_accesses(step, None) for step in kernel.impl.steps]
    yield from _read_first(kernel, steps, path, scratch_resolves)
    # An `out` parameter that a step reads was written before, or was just reported.
    settled = {a.interface for step in steps for a in step if a.writes or _is_out(kernel, a)}
    for index, param in enumerate(kernel.params):
        if param.writes and index not in settled:
            code = INOUT_NEVER_WRITTEN if param.reads else OUT_NEVER_WRITTEN
            help = "forward it to a step that writes it, or make it `in`"
            yield code.at((*path, "params", index), f"no step writes `{param}`", help)
    if scratch_resolves:
        yield from _scratch(kernel, steps, path)


def _is_out(kernel: Kernel, access: Access) -> bool:
    return access.interface is not None and not kernel.params[access.interface].reads


def _read_first(kernel: Kernel, steps: Sequence[Step], path: Path, scratch_resolves: bool) -> Iterator[Diagnostic]:
    """`out` parameters and scratch that are read before any step wrote them, each reported once."""
    filled: set[object] = {("scratch", name) for name, scratch in kernel.impl.scratch.items() if scratch.keep}
    filled |= {("parameter", str(i)) for i, param in enumerate(kernel.params) if param.reads}
    for index, step in enumerate(steps):
        for access in step:
            key = access.kind, access.name
            if not access.reads or key in filled:
                continue
            filled.add(key)
            location = (*path, "impl", "steps", index, "args", access.position)
            if access.kind == "parameter":
                message = f"interface parameter {access.name} is `out`, and no earlier step writes it"
                yield OUT_READ_FIRST.at(location, message, "write it first, or make it `inout`")
            elif scratch_resolves:
                message = f"no earlier step writes `{access.name}`"
                yield SCRATCH_READ_FIRST.at(location, message, "write it first, or declare it `keep`")
        filled.update((access.kind, access.name) for access in step if access.writes)


def _scratch(kernel: Kernel, steps: Sequence[Step], path: Path) -> Iterator[Diagnostic]:
    """Scratch that is not used, or only written, or only read."""
    accesses = [access for step in steps for access in step if access.kind == "scratch"]
    read = {access.name for access in accesses if access.reads}
    written = {access.name for access in accesses if access.writes}
    # Scratch that no step reads may take a second result of a step.
    useful = set(read)
    for step in steps:
        results = [access for access in step if access.writes]
        if any(access.kind == "parameter" or access.name in read for access in results):
            useful.update(access.name for access in results)
    for name, scratch in kernel.impl.scratch.items():
        location = (*path, "impl", "scratch", name)
        if name not in read | written:
            yield SCRATCH_UNUSED.at(location, f"no step uses `{name}`", "remove it", anchor="key")
        elif scratch.keep and name not in written:
            message = f"no step writes `{name}`, so it is always zero"
            yield KEPT_NEVER_WRITTEN.at(location, message, "write it in a step, or remove it", anchor="key")
        elif name not in useful:
            message = f"no step reads `{name}`, and no step that writes it has another result"
            yield SCRATCH_NEVER_READ.at(location, message, "read it, or remove it and its step", anchor="key")


CODES = (
    OUT_NEVER_WRITTEN, OUT_READ_FIRST, INOUT_NEVER_WRITTEN, SCRATCH_READ_FIRST, SCRATCH_UNUSED, KEPT_NEVER_WRITTEN,
    SCRATCH_NEVER_READ,
)  # fmt: skip
