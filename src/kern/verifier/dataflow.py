"""Rule 8, data flow: nothing is read before it is written, and no result is left unread."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from kern.manifest.diagnostics import Code, Diagnostic, Example, Path
from kern.manifest.effects import Access
from kern.verifier.example import edit
from kern.verifier.scope import Scope

_SUMMARY = "/programs/step/dispatches/3"

NOTHING_WROTE = Code(
    "K0801",
    "read before any write",
    "A workspace or output has no content at the start of a program: its memory was used for other buffers. An earlier "
    "dispatch of the same program must write it; a write to any part counts. A buffer that outlives a program is a "
    "carry.",
    edit("/programs/fill/dispatches/0/args/0/buf", '"scaled"', '"mixed"'),
)
INPUT_WRITTEN = Code(
    "K0802",
    "write to an input",
    "The host writes inputs between executions and relies on their content. Write to a workspace, or declare the "
    "buffer a carry.",
    edit("/buffers/total/class", '"input"', '"carry"'),
)
WEIGHT_WRITTEN = Code(
    "K0803",
    "write to a weight",
    "Weights are tensors of a file, shared between executions and possibly mapped read-only. Write to a workspace.",
    edit("/buffers/total/class", '"weight"', '"carry"'),
)
OUTPUT_NEVER_WRITTEN = Code(
    "K0804",
    "output that no program writes",
    "The host would always read zeros. Each output is written by at least one program; a program need not write any. "
    "Remove the output, or write it.",
    edit(f"{_SUMMARY}/args/0/buf", '"mixed"', '"peak"'),
)
CARRY_NEVER_WRITTEN = Code(
    "K0805",
    "carry that no program writes",
    "A carry passes results of one execution to later ones, and this one would always be zero. A buffer that the host "
    "provides is an input.",
    edit("/buffers/signal/class", '"carry"', '"input"'),
)
STATE_NEVER_WRITTEN = Code(
    "K0806",
    "state that no kernel writes",
    "A state is zero after loading, and the host cannot write it: one that kernels only read would always be zero. "
    "Data that comes with the model is a weight, and data that the host provides is an input.",
    Example(
        {
            "/kernels/record/params/1": '"in ptr align 16"',
            "/kernels/record/impl/steps/0/params/1": '"in ptr"',
            "/kernels/record/params/0": '"inout buffer<f32>"',
            "/kernels/record/impl/steps/0/params/0": '"inout buffer<f32>"',
        },
        {},
    ),
)
WORKSPACE_NEVER_READ = Code(
    "K0807",
    "workspace that nothing reads",
    "A workspace ends with its program, so a dispatch that writes only workspaces that no dispatch reads has no "
    "effect. An unread workspace is accepted where it takes a second result of a dispatch. A buffer that the host "
    "reads is an output.",
    Example(
        {
            "/buffers/spare": '{"dtype": "f32", "shape": ["rows", 128], "class": "workspace"}',
            "/programs/step/dispatches/0/args/0/buf": '"spare"',
            "/programs/step/dispatches/1/args/1/buf": '"total"',
        },
        {
            "/buffers/spare": '{"dtype": "f32", "shape": ["rows", 128], "class": "workspace"}',
            "/programs/step/dispatches/0/args/0/buf": '"spare"',
            "/programs/step/dispatches/1/args/1/buf": '"spare"',
        },
    ),
)


def check_programs(scope: Scope, unresolved: Container[Path]) -> Iterator[Diagnostic]:
    """Rule 8 within each program; `unresolved` has the paths of dispatches whose references do not all resolve."""
    has_content = {n for n, buffer in scope.manifest.buffers.items() if buffer.class_ in ("input", "weight", "carry")}
    has_content.update(_never_written(scope))
    for program in scope.accesses:
        yield from _program(scope, program, set(has_content), unresolved)


def check_results(scope: Scope) -> Iterator[Diagnostic]:
    """Rule 8 across programs. Every reference of the dispatches to kernels and buffers must resolve."""
    for name in _never_written(scope):
        class_ = scope.manifest.buffers[name].class_
        code = OUTPUT_NEVER_WRITTEN if class_ == "output" else CARRY_NEVER_WRITTEN
        yield code.at(
            ("buffers", name), f"no program writes the {class_} `{name}`", "write it, or remove it", anchor="key"
        )
    yield from _never_read(scope, [call for calls in scope.accesses.values() for call in calls])


def _never_written(scope: Scope) -> Sequence[str]:
    written = {a.name for calls in scope.accesses.values() for call in calls for a in _buffers(call) if a.writes}
    buffers = scope.manifest.buffers.items()
    return [name for name, buffer in buffers if buffer.class_ in ("output", "carry") and name not in written]


def _buffers(call: Iterable[Access]) -> Iterator[Access]:
    return (access for access in call if access.kind == "buffer")


def _program(scope: Scope, program: str, written: set[str], unresolved: Container[Path]) -> Iterator[Diagnostic]:
    """The dispatches of one program in order; `written` holds the buffers that have content at its start."""
    for index, call in enumerate(scope.accesses[program]):
        path: Path = ("programs", program, "dispatches", index)
        if path in unresolved:
            written.update(scope.manifest.buffers)  # it may have been meant to write any of them
            continue
        results = []
        for access in _buffers(call):
            location = (*path, "args", access.position)
            if access.writes:
                results.append((access.name, location))
            if access.reads and access.name not in written:
                written.add(access.name)  # reported once
                message = f"`{access.name}` is read before anything in this program writes it"
                yield NOTHING_WROTE.at(location, message, "write it in an earlier dispatch, or read another buffer")
        for name, location in results:
            class_ = scope.manifest.buffers[name].class_
            if class_ == "input":
                yield INPUT_WRITTEN.at(location, f"`{name}` is an input", "write to a workspace or a carry")
            elif class_ == "weight":
                yield WEIGHT_WRITTEN.at(location, f"`{name}` is a weight", "write to a workspace")
            written.add(name)


def _never_read(scope: Scope, calls: Sequence[Sequence[Access]]) -> Iterator[Diagnostic]:
    """Workspaces that nothing reads, and that no dispatch writes together with another result."""
    wanted = {access.name for call in calls for access in _buffers(call) if access.reads}
    workspaces = {name for name, buffer in scope.manifest.buffers.items() if buffer.class_ == "workspace"}
    wanted |= scope.manifest.buffers.keys() - workspaces
    useful = set(wanted)
    for call in calls:
        written = [access for access in call if access.writes]
        if any(access.kind == "state" or access.name in wanted for access in written):
            useful.update(access.name for access in written if access.kind == "buffer")
    for name in scope.manifest.buffers:
        if name in scope.usage.buffers and name not in useful:
            message = f"nothing reads `{name}`, and no dispatch that writes it has another result"
            location = ("buffers", name)
            yield WORKSPACE_NEVER_READ.at(location, message, "read it, or remove the dispatch", anchor="key")


def check_states(scope: Scope) -> Iterator[Diagnostic]:
    """Rule 8 for states. Every reference of the dispatches to kernels and states must resolve."""
    accesses = (access for calls in scope.accesses.values() for call in calls for access in call)
    written = {access.name for access in accesses if access.kind == "state" and access.writes}
    for name in scope.manifest.states:
        # Rule 9 reports one that nothing uses.
        if name in scope.usage.states and name not in written:
            message = f"no kernel writes the state `{name}`, so it is always zero"
            location = ("states", name)
            yield STATE_NEVER_WRITTEN.at(location, message, "write it, or declare a weight or an input", anchor="key")


CODES = (
    NOTHING_WROTE, INPUT_WRITTEN, WEIGHT_WRITTEN, OUTPUT_NEVER_WRITTEN, CARRY_NEVER_WRITTEN, STATE_NEVER_WRITTEN,
    WORKSPACE_NEVER_READ,
)  # fmt: skip
