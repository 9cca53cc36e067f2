"""Rule 9: unused declarations, and programs that do nothing."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from kern.manifest.diagnostics import Code, Diagnostic, Example, Path
from kern.manifest.types import Arg, Kernel
from kern.verifier.example import edit
from kern.verifier.scope import Scope

_SPARE = (
    '{"params": ["out buffer<f32>", "in buffer<f32>", "f32"], "impl": {"steps": [{"symbol": "spare_f32", '
    '"params": ["out buffer<f32>", "in buffer<f32>", "f32"], "block": [128, 1, 1], '
    '"grid": [{"sym": "rows"}, 1, 1], "args": [{"arg": 0}, {"arg": 1}, {"arg": 2}]}]}}'
)

SYMBOL_UNUSED = Code(
    "K0901",
    "unused symbol",
    "A symbol is used in a shape, a grid, the size of shared memory or an argument, and this one is used nowhere. "
    "Bounds inside a program are not a use. Remove it, or use it.",
    Example(
        {"/symbols/spare": '{"max": 8}'},
        {"/symbols/spare": '{"max": 8}', "/kernels/scale/impl/steps/0/grid/1": '{"sym": "spare"}'},
    ),
)
STATE_UNUSED = Code(
    "K0902",
    "unused state",
    "Memory would be allocated for a state that no dispatch passes to a kernel. Usually its name is misspelt, or the "
    "dispatch is missing.",
    Example(
        {"/states/spare": '{"bytes": 64}'},
        {
            "/states/spare": '{"bytes": 64}',
            "/programs/step/dispatches/2/args/1": '{"state": "spare"}',
        },
    ),
)
BUFFER_UNUSED = Code(
    "K0903",
    "unused buffer",
    "No dispatch passes this buffer to a kernel, but its memory would be allocated, and a weight would be loaded. "
    "Remove it, or pass it to a kernel.",
    Example(
        {"/buffers/spare": '{"dtype": "f32", "shape": ["rows", 128], "class": "workspace"}'},
        {
            "/buffers/spare": '{"dtype": "f32", "shape": ["rows", 128], "class": "workspace"}',
            "/programs/fill/dispatches/1/args/0/buf": '"spare"',
            "/programs/fill/dispatches/2/args/0/buf": '"spare"',
        },
    ),
)
KERNEL_UNUSED = Code(
    "K0904",
    "unused kernel",
    "No dispatch calls this kernel, but its files would be required, checked and loaded. Remove it, or dispatch it.",
    Example(
        {"/kernels/spare": _SPARE},
        {"/kernels/spare": _SPARE, "/programs/step/dispatches/1/kernel": '"spare"'},
    ),
)
PARAM_UNUSED = Code(
    "K0905",
    "unused interface parameter",
    "Every dispatch passes this argument, and no step of the implementation uses it. Remove it from the interface, or "
    "forward it to a step.",
    edit("/kernels/scale/impl/steps/0/args/2", '{"f32": 0.5}', '{"arg": 2}'),
)
NO_PROGRAMS = Code(
    "K0906",
    "no programs",
    "Without a program nothing in a manifest can be run. Add one that dispatches at least one kernel.",
    edit(
        "/programs",
        "{}",
        '{"step": {"dispatches": ['
        '{"kernel": "product", "args": [{"buf": "mixed"}, {"buf": "signal"}, {"buf": "filter"}, {"sym": "rows"}, '
        '{"i32": 128}, {"i32": 64}]}, '
        '{"kernel": "scale", "args": [{"buf": "scaled"}, {"buf": "mixed"}, {"f32": 0.5}]}, '
        '{"kernel": "record", "args": [{"buf": "scaled"}, {"state": "history"}, {"sym": "start"}, {"u32": 128}]}, '
        '{"kernel": "summarize", "args": [{"buf": "peak"}, {"buf": "total"}, {"buf": "scaled"}, {"i32": 128}]}]}}',
    ),
)
NO_DISPATCHES = Code(
    "K0907",
    "program without dispatches",
    "Running this program would do nothing. Remove it, or add its dispatches.",
    Example(
        {"/programs/idle": '{"dispatches": []}'},
        {
            "/programs/idle": '{"dispatches": [{"kernel": "product", "args": [{"buf": "mixed"}, {"buf": "signal"}, '
            '{"buf": "filter"}, {"sym": "rows"}, {"i32": 128}, {"i32": 64}]}]}'
        },
    ),
)


def check(scope: Scope, broken: Container[str], unresolved: Container[str]) -> Iterator[Diagnostic]:
    """Everything of rule 9.

    A reference that does not resolve may be the only use of something of its kind, so names of `unresolved` kinds are
    not reported as unused, nor are the parameters of `broken` kernels.
    """
    programs = scope.manifest.programs
    if not programs:
        yield NO_PROGRAMS.at(("programs",), "the manifest has no program", "add one")
    for name, program in programs.items():
        if not program.dispatches:
            path: Path = ("programs", name, "dispatches")
            yield NO_DISPATCHES.at(path, f"`{name}` has no dispatches", "add a dispatch, or remove the program")
    for name, kernel in scope.manifest.kernels.items():
        if name not in broken:
            yield from _params(kernel, ("kernels", name))
    yield from _declarations(scope, unresolved)


def _params(kernel: Kernel, path: Path) -> Iterator[Diagnostic]:
    forwarded = {arg.arg for step in kernel.impl.steps for arg in step.args if isinstance(arg, Arg)}
    for index, param in enumerate(kernel.params):
        # Rule 6 reports one that should be written and is not.
        if index not in forwarded and not param.writes:
            message = f"no step uses interface parameter {index}, `{param}`"
            yield PARAM_UNUSED.at((*path, "params", index), message, "forward it, or remove it")


def _declarations(scope: Scope, unresolved: Container[str]) -> Iterator[Diagnostic]:
    manifest, usage = scope.manifest, scope.usage
    # Rule 8 reports outputs and carries that nothing writes.
    buffers = (name for name, buffer in manifest.buffers.items() if buffer.class_ not in ("output", "carry"))
    declared: tuple[tuple[Code, str, Iterable[str], Container[str]], ...] = (
        (SYMBOL_UNUSED, "symbol", manifest.symbols, usage.symbols),
        (STATE_UNUSED, "state", manifest.states, usage.states),
        (BUFFER_UNUSED, "buffer", buffers, usage.buffers),
        (KERNEL_UNUSED, "kernel", manifest.kernels, usage.kernels),
    )
    for code, kind, names, used in declared:
        for name in names if kind not in unresolved else ():
            if name not in used:
                message = f"nothing uses the {kind} `{name}`"
                yield code.at((f"{kind}s", name), message, "remove it, or use it", anchor="key")


CODES = (
    SYMBOL_UNUSED, STATE_UNUSED, BUFFER_UNUSED, KERNEL_UNUSED, PARAM_UNUSED, NO_PROGRAMS, NO_DISPATCHES,
)  # fmt: skip
