"""Rule 8, results: states that nothing fills, and dispatches whose results nothing reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kern.manifest.diagnostics import Code, Diagnostic, Example
from kern.manifest.types import BufferArg, Dispatch, StateArg
from kern.verifier.scope import Scope
from kern.verifier.suppression import Unresolved

STATE_NEVER_WRITTEN = Code(
    "K0806",
    "state that no kernel writes",
    "A state is zero at load, and the host cannot write it: one that kernels only read would always hold zeros. What "
    "comes with the model is a weight, and what the host provides is an input.",
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
    "A workspace ends with its program, so a dispatch that writes nothing but workspaces that no dispatch reads does "
    "nothing. A dispatch that must be given somewhere to put a second result, which nobody wants, is not refused. What "
    "the host reads is an output.",
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


def check(scope: Scope, unresolved: Unresolved) -> Iterator[Diagnostic]:
    """States that are only read, and workspaces that are only written by dispatches that write nothing else."""
    effects = _Effects()
    for program in scope.manifest.programs.values():
        for dispatch in program.dispatches:
            effects.add(scope, dispatch)
    for name in scope.manifest.states:
        # One that nothing uses is told by rule 9.
        if name in scope.usage.states and name not in effects.states_written and not unresolved.states:
            message = f"no kernel writes the state `{name}`, so it is always zero"
            place = ("states", name)
            yield STATE_NEVER_WRITTEN.at(place, message, "write it, or declare a weight or an input", anchor="key")
    wanted = effects.wanted(scope)
    for name, buffer in scope.manifest.buffers.items():
        sought = {None, buffer.dtype} & unresolved.buffers
        if buffer.class_ == "workspace" and name in scope.usage.buffers and name not in wanted and not sought:
            message = f"nothing reads `{name}`, and what writes it writes nothing else"
            place = ("buffers", name)
            yield WORKSPACE_NEVER_READ.at(place, message, "read it, or take the dispatch out", anchor="key")


@dataclass(frozen=True, slots=True)
class _Effects:
    """What all dispatches read and write; one whose arguments do not resolve may do either to all it is given."""

    states_written: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    written: list[set[str]] = field(default_factory=list)
    """The buffers that a dispatch writes, for each one that writes no state."""

    def add(self, scope: Scope, dispatch: Dispatch) -> None:
        interface = scope.interfaces.get(dispatch.kernel)
        if interface is None or len(interface.params) != len(dispatch.args):
            self.states_written.update(arg.state for arg in dispatch.args if isinstance(arg, StateArg))
            self.read.update(arg.buf for arg in dispatch.args if isinstance(arg, BufferArg))
            return
        written: set[str] = set()
        states = False
        for arg, param in zip(dispatch.args, interface.params, strict=True):
            if type(arg) is StateArg:
                if param.writes or param.kind != "ptr":
                    self.states_written.add(arg.state)
                states = states or param.writes
            elif type(arg) is BufferArg:
                buffer = scope.manifest.buffers.get(arg.buf)
                if param.reads or buffer is None or buffer.dtype != param.dtype:
                    self.read.add(arg.buf)
                if param.writes:
                    written.add(arg.buf)
        if states:
            self.read.update(written)
        else:
            self.written.append(written)

    def wanted(self, scope: Scope) -> set[str]:
        """The buffers that are read, or that come with a result of their dispatch which is."""
        workspaces = {name for name, buffer in scope.manifest.buffers.items() if buffer.class_ == "workspace"}
        useful = [names for names in self.written if names & self.read or names - workspaces]
        return self.read.union(*useful)


CODES = (STATE_NEVER_WRITTEN, WORKSPACE_NEVER_READ)
