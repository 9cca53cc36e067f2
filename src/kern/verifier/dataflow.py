"""Rule 8: data flow, program by program: nothing is read that nothing wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kern.manifest.diagnostics import Code, Diagnostic, Path
from kern.manifest.params import DType
from kern.manifest.types import BufferArg, Dispatch, DispatchArg, Program
from kern.verifier import results
from kern.verifier.example import edit
from kern.verifier.scope import Scope
from kern.verifier.suppression import Unresolved, slots

_SUMMARY = "/programs/step/dispatches/3"

NOTHING_WROTE = Code(
    "K0801",
    "read of what nothing wrote",
    "A workspace or output holds nothing at the start of a program: its memory served others before. Some earlier "
    "dispatch of the same program must write it; a write to any part counts. What outlives a program is a carry.",
    edit("/programs/fill/dispatches/0/args/0/buf", '"scaled"', '"mixed"'),
)
INPUT_WRITTEN = Code(
    "K0802",
    "write to an input",
    "Inputs belong to the host, which writes them between executions and relies on their content. Write to a "
    "workspace, or declare the buffer a carry.",
    edit("/buffers/total/class", '"input"', '"carry"'),
)
WEIGHT_WRITTEN = Code(
    "K0803",
    "write to a weight",
    "Weights are the tensors of a file, shared between executions and perhaps mapped read-only. Write to a workspace.",
    edit("/buffers/total/class", '"weight"', '"carry"'),
)
OUTPUT_NEVER_WRITTEN = Code(
    "K0804",
    "output that no program writes",
    "The host would always read zeros. Some program writes each output; one that leaves only state behind writes "
    "none, which is fine. Take the output out, or write it.",
    edit(f"{_SUMMARY}/args/0/buf", '"mixed"', '"peak"'),
)
CARRY_NEVER_WRITTEN = Code(
    "K0805",
    "carry that no program writes",
    "A carry hands results from one execution to later ones, and this one would always hold zeros. What the host "
    "provides is an input.",
    edit("/buffers/signal/class", '"carry"', '"input"'),
)


def check(scope: Scope, unresolved: Unresolved) -> Iterator[Diagnostic]:
    """Everything of rule 8."""
    written = set(unresolved.mispassed)
    for program in scope.manifest.programs.values():
        for dispatch in program.dispatches:
            written.update(_touched(scope, dispatch))
    never = {
        name
        for name, buffer in scope.manifest.buffers.items()
        if buffer.class_ in ("output", "carry") and name not in written
    }
    for name in scope.manifest.buffers:
        if name in never and not {None, scope.manifest.buffers[name].dtype} & unresolved.written:
            yield _never_written(scope, name)
    yield from results.check(scope, unresolved)
    classes = _Classes.of(scope, never | unresolved.mispassed)
    for name, program in scope.manifest.programs.items():
        yield from _Walk(scope, classes).check(program, ("programs", name, "dispatches"))


def _touched(scope: Scope, dispatch: Dispatch) -> Iterator[str]:
    """Buffers that the dispatch writes, or may write where its arguments do not resolve."""
    interface = scope.interfaces.get(dispatch.kernel)
    if interface is not None and len(interface.params) == len(dispatch.args):
        args: Iterable[DispatchArg] = (dispatch.args[index] for index in interface.written)
    else:
        args = dispatch.args
    yield from (arg.buf for arg in args if type(arg) is BufferArg)


def _never_written(scope: Scope, name: str) -> Diagnostic:
    class_ = scope.manifest.buffers[name].class_
    code = OUTPUT_NEVER_WRITTEN if class_ == "output" else CARRY_NEVER_WRITTEN
    return code.at(
        ("buffers", name), f"no program writes the {class_} `{name}`", "write it, or take it out", anchor="key"
    )


@dataclass(frozen=True, slots=True)
class _Classes:
    """What the walks of all programs share: `given` hold something at a program's start, `fixed` are never written."""

    given: frozenset[str]
    fixed: frozenset[str]
    dtypes: Mapping[str, DType]

    @classmethod
    def of(cls, scope: Scope, excused: set[str]) -> _Classes:
        """`excused` are buffers whose lack of a write is told elsewhere."""
        buffers = scope.manifest.buffers
        given = {name for name, buffer in buffers.items() if buffer.class_ in ("input", "weight", "carry")}
        fixed = {name for name, buffer in buffers.items() if buffer.class_ in ("input", "weight")}
        dtypes = {name: buffer.dtype for name, buffer in buffers.items()}
        return cls(frozenset(given | excused), frozenset(fixed), dtypes)


class _Walk:
    """One program in order."""

    def __init__(self, scope: Scope, classes: _Classes) -> None:
        self.scope = scope
        self.given, self.fixed, self.dtypes = classes.given, classes.fixed, classes.dtypes
        self.written: set[str] = set()
        self.maybe_written: set[DType | None] = set()

    def check(self, program: Program, path: Path) -> Iterator[Diagnostic]:
        for index, dispatch in enumerate(program.dispatches):
            interface = self.scope.interfaces.get(dispatch.kernel)
            if interface is None or len(interface.params) != len(dispatch.args):
                self._unclear(dispatch)
                continue
            written: list[str] = []
            for position, reads, writes in interface.pointers:
                arg, param = dispatch.args[position], interface.params[position]
                if type(arg) is not BufferArg or self.dtypes.get(arg.buf) != param.dtype:
                    if writes and param.dtype is not None:
                        self.maybe_written.add(param.dtype)
                    continue
                if reads and arg.buf not in self.given and arg.buf not in self.written:
                    yield from self._read(arg.buf, (*path, index, "args", position))
                if writes:
                    written.append(arg.buf)
                    if arg.buf in self.fixed:
                        yield self._write(arg.buf, (*path, index, "args", position))
            self.written.update(written)

    def _unclear(self, dispatch: Dispatch) -> None:
        self.written.update(_touched(self.scope, dispatch))
        for arg, param in slots(self.scope, dispatch):
            if arg is None and param is not None and param.writes and param.dtype is not None:
                self.maybe_written.add(param.dtype)

    def _read(self, name: str, path: Path) -> Iterator[Diagnostic]:
        self.written.add(name)
        if self.scope.manifest.buffers[name].dtype in self.maybe_written:
            return
        message = f"nothing in this program wrote `{name}` before"
        yield NOTHING_WROTE.at(path, message, "write it in an earlier dispatch, or read another buffer")

    def _write(self, name: str, path: Path) -> Diagnostic:
        if self.scope.manifest.buffers[name].class_ == "input":
            return INPUT_WRITTEN.at(path, f"`{name}` is an input", "write to a workspace or a carry")
        return WEIGHT_WRITTEN.at(path, f"`{name}` is a weight", "write to a workspace")


CODES = (NOTHING_WROTE, INPUT_WRITTEN, WEIGHT_WRITTEN, OUTPUT_NEVER_WRITTEN, CARRY_NEVER_WRITTEN, *results.CODES)
