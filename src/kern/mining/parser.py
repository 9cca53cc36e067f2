"""The lines of one process's recording, checked one after another: what each refers to must come before it.

>>> reader = Reader(Budget())
>>> reader.read(1, b'{"record": "process", "t": 0, "format": 1, "pid": 7}\\n')
>>> reader.read(2, b'{"record": "launch", "t": 1, "thread": 1, "kernel": 0, "grid": [1, 1, 1], "block": [1, 1, 1]}\\n')
Traceback (most recent call last):
kern.mining.parser.LineError: kernel 0 was not defined before
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from kern.manifest.params import Layout
from kern.mining.events import WORD, Copy, Event, Fill, Kernel, Launch, Pointer
from kern.mining.limits import MAX_LINE, Budget
from kern.mining.schema import (
    FORMAT,
    LINE,
    CopyRecord,
    EndRecord,
    FillRecord,
    GraphLaunchRecord,
    GraphRecord,
    KernelRecord,
    LaunchRecord,
    LostRecord,
    ModuleRecord,
    NodeRecord,
    PointerRecord,
    ProcessRecord,
    Record,
    UnloadRecord,
)

_SURROGATE: Final = re.compile(rb"\\ud[89a-f][0-9a-f]{2}")
"""Half a character, as bytes of a command that are not UTF-8 are written."""


class LineError(Exception):
    """What is wrong with a line."""


def _parse(line: bytes) -> Record:
    if b"\\ud" in line:
        line = _SURROGATE.sub(b"\\\\ufffd", line)
    try:
        return LINE.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        location = ".".join(str(part) for part in first["loc"][1:])
        raise LineError(f"{location}: {first['msg']}" if location else first["msg"]) from None


@dataclass(frozen=True, slots=True)
class _Graph:
    """A graph's launches, checked, and how many parts they have in all."""

    nodes: tuple[tuple[Kernel, NodeRecord, tuple[Pointer, ...]], ...]
    parts: int


@dataclass
class Reader:
    """Takes the lines in order, and holds what later lines refer to. What it reads is taken from `budget`."""

    budget: Budget
    process: ProcessRecord | None = None
    kernels: dict[int, Kernel] = field(default_factory=dict)
    modules: dict[str, int] = field(default_factory=dict)
    graphs: dict[int, _Graph] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    losses: list[LostRecord] = field(default_factory=list)
    captured: int = 0
    graph_launches: int = 0
    torn: bool = False
    ended: bool = False

    def read(self, number: int, line: bytes) -> None:
        """Take line `number`, with its newline; a line without one was cut off. Raises LineError, Excess."""
        self.budget.take_bytes(len(line))
        if not line.endswith(b"\n"):
            if len(line) == MAX_LINE:
                raise LineError(f"the line is longer than {MAX_LINE:,} bytes")
            self.torn = True
            return
        record = _parse(line)
        if self.process is None:
            if not isinstance(record, ProcessRecord):
                raise LineError("the first line does not describe the process")
            if record.format != FORMAT:
                raise LineError(f"the recording has format {record.format}, and format {FORMAT} is read")
            self.process = record
            return
        self._take(number, record)

    def _take(self, number: int, record: Record) -> None:
        match record:
            case LaunchRecord():
                self._launch(number, record)
            case CopyRecord() | FillRecord():
                self._transfer(number, record)
            case KernelRecord():
                self._kernel(record)
            case ModuleRecord():
                self.budget.take(0, 1)
                self.modules[record.module] = record.size
            case UnloadRecord():
                self._known(record.module)
            case GraphRecord():
                self._graph(record)
            case GraphLaunchRecord():
                self._graph_launch(number, record)
            case LostRecord():
                self.budget.take(0, 1)
                self.losses.append(record)
            case EndRecord():
                self.ended = True
            case ProcessRecord():
                raise LineError("a second process in one recording")

    def _known(self, module: str) -> None:
        if module not in self.modules:
            raise LineError(f"module {module} was not loaded before")

    def _kernel(self, record: KernelRecord) -> None:
        if record.kernel in self.kernels:
            raise LineError(f"kernel {record.kernel} is defined twice")
        for module in (*((record.module,) if record.module else ()), *record.candidates):
            self._known(module)
        self.budget.take(0, 1 + len(record.params or ()) + len(record.candidates))
        layout = None
        if record.params is not None:
            layout = Layout(tuple(at for at, _ in record.params), tuple(size for _, size in record.params))
        self.kernels[record.kernel] = Kernel(
            record.symbol, record.module, layout, record.attributes, record.found, record.candidates
        )

    def _find(self, number: int) -> Kernel:
        if number not in self.kernels:
            raise LineError(f"kernel {number} was not defined before")
        return self.kernels[number]

    def _launch(self, number: int, record: LaunchRecord) -> None:
        kernel = self._find(record.kernel)
        pointers = _pointers(kernel, record)
        if record.capturing:
            self.captured += 1
            return
        self.budget.take(1, _parts(record))
        self._ran(number, record, kernel, record, pointers)

    def _ran(
        self,
        number: int,
        record: LaunchRecord | GraphLaunchRecord,
        kernel: Kernel,
        launch: LaunchRecord | NodeRecord,
        pointers: tuple[Pointer, ...],
        graph: int | None = None,
    ) -> None:
        """Line `number` launched a kernel: by itself, or as a node of a graph."""
        geometry = (launch.grid, launch.block, launch.shared, launch.attributes)
        given = (launch.params, pointers, launch.via, launch.whole)
        self.events.append(Launch(*self._common(number, record), kernel, *geometry, *given, graph))

    def _common(
        self, number: int, record: LaunchRecord | GraphLaunchRecord | CopyRecord | FillRecord
    ) -> tuple[int, int, int, int, int]:
        return len(self.events), number, record.t, record.thread, record.stream

    def _transfer(self, number: int, record: CopyRecord | FillRecord) -> None:
        if record.capturing:
            return
        self.budget.take(1, 0)
        common = self._common(number, record)
        self.events.append(
            Copy(*common, record.source, record.target, record.size, record.kind, record.data)
            if isinstance(record, CopyRecord)
            else Fill(*common, record.target, record.size, record.value, record.width)
        )

    def _graph(self, record: GraphRecord) -> None:
        nodes = []
        for node in record.nodes:
            if node.kernel is not None:
                kernel = self._find(node.kernel)
                nodes.append((kernel, node, _pointers(kernel, node)))
        parts = sum(_parts(node) for _, node, _ in nodes)
        self.budget.take(0, len(nodes) + parts)
        self.graphs[record.graph] = _Graph(tuple(nodes), parts)
        if record.truncated:
            self.losses.append(LostRecord("lost", record.t, "nodes of a graph", "the driver did not list all of them"))

    def _graph_launch(self, number: int, record: GraphLaunchRecord) -> None:
        if record.graph not in self.graphs:
            raise LineError(f"graph {record.graph} was not defined before")
        self.graph_launches += 1
        graph = self.graphs[record.graph]
        self.budget.take(len(graph.nodes), graph.parts)
        for kernel, node, pointers in graph.nodes:
            self._ran(number, record, kernel, node, pointers, record.graph)


def _parts(launch: LaunchRecord | NodeRecord) -> int:
    return len(launch.params or ()) + len(launch.pointers)


def _pointers(kernel: Kernel, launch: LaunchRecord | NodeRecord) -> tuple[Pointer, ...]:
    """The addresses in a launch's parameters, which must have the kernel's layout, or in its whole packed buffer."""
    if launch.params is None:
        whole = launch.whole or b""
        return tuple(_pointer(kernel, whole, record) for record in launch.pointers)
    if kernel.layout is None or tuple(map(len, launch.params)) != kernel.layout.sizes:
        raise LineError(f"{kernel.symbol}: the parameters' sizes are not those of the kernel")
    pointers = []
    for record in launch.pointers:
        if record.param is None or record.param >= len(launch.params):
            raise LineError(f"{kernel.symbol}: a pointer in a parameter that does not exist")
        pointers.append(_pointer(kernel, launch.params[record.param], record))
    return tuple(pointers)


def _pointer(kernel: Kernel, data: bytes, record: PointerRecord) -> Pointer:
    if record.at + WORD > len(data):
        raise LineError(f"{kernel.symbol}: a pointer lies outside its parameter")
    address = int.from_bytes(data[record.at : record.at + WORD], "little")
    return Pointer(record.param or 0, record.at, address, record.memory, record.range, record.data)
