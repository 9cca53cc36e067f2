"""A simulated program whose every launch is known: layers within passes, variants by token count, memory reused."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kern.manifest.expressions import Expr, evaluate
from support.recordings import Allocator, Recorder, launch_values, packed

Role = Literal["weight", "shared", "state", "input", "read", "write", "residual", "i32", "i64", "f32", "u8", "position"]
"""What a parameter is: a pointer (the first seven) or a scalar; `position` varies between passes of equal size."""
POINTERS = ("weight", "shared", "state", "input", "read", "write", "residual")
WIDTHS = {"i32": 4, "i64": 8, "f32": 4, "u8": 1, "position": 4}


@dataclass(frozen=True)
class Arg:
    """A parameter: `value` is a scalar's expression in tokens, or a float; `width` bytes per token that is written."""

    role: Role
    value: Expr | float = 0
    width: int = 256


@dataclass(frozen=True)
class Op:
    """A launch of each pass: for `many` tokens, for `one`, or for `any`; `opaque` kernels have unknown parameters."""

    symbol: str
    args: tuple[Arg, ...]
    grid: tuple[Expr, Expr, Expr] = (1, 1, 1)
    when: Literal["any", "many", "one"] = "any"
    image: str = "common"
    opaque: bool = False
    struct: bool = False
    by_size: bool = False
    stream: int = 7
    thread: int = 1


@dataclass(frozen=True)
class Program:
    """What one pass launches: prologue, layers, epilogue."""

    prologue: tuple[Op, ...]
    layer: tuple[Op, ...]
    layers: int
    epilogue: tuple[Op, ...]


@dataclass(frozen=True)
class Known:
    """A launch as the simulator knows it: its pass, its place in the program, and its operation."""

    line: int
    number: int
    place: tuple[str, int, int]
    op: Op


@dataclass
class Truth:
    """What was simulated: the tokens of each pass, and every launch of a pass by its line."""

    folder: Path
    tokens: list[int] = field(default_factory=list)
    launches: dict[int, Known] = field(default_factory=dict)


@dataclass
class Behaviour:
    """What makes records hard to read."""

    seed: int = 0
    initialise: bool = True
    disturb: float = 0.0
    """How likely an allocation is made, and kept for a while, at the end of a pass."""
    late: float = 0.0
    """The probability that the last launch of a pass is recorded after the first of the next one."""
    noise: bool = True
    """Launches between passes, and times that say nothing."""
    copies: bool = True
    partial: int = 0
    """Warm-up runs of a single layer, before the passes."""
    graph: bool = False
    """Passes of one token are captured into a graph once, and launched as one."""


def simulate(dump: Path, program: Program, sizes: Sequence[int], behaviour: Behaviour, pid: int = 100) -> Truth:
    """Run a program once for each token count, and record it."""
    return _Run(dump, program, behaviour, pid).run(sizes)


class _Run:
    def __init__(self, dump: Path, program: Program, behaviour: Behaviour, pid: int) -> None:
        self.recorder = Recorder(dump, pid)
        self.program, self.behaviour = program, behaviour
        self.random = random.Random(behaviour.seed)
        self.allocator = Allocator()
        self.truth = Truth(self.recorder.folder)
        self.modules: dict[str, str] = {}
        self.fixed: dict[tuple[str, int, int, int], int] = {}
        self.kept: list[int] = []
        self.late: list[Callable[[], None]] = []
        self.nodes: list[dict[str, Any]] | None = None
        self.captured = False
        self._place_fixed()

    def run(self, sizes: Sequence[int]) -> Truth:
        if self.behaviour.initialise:
            self._initialise()
        for _ in range(self.behaviour.partial):
            self._ops("layer", 0, self.program.layer, 4, None)
            self._pause()
        for number, tokens in enumerate(sizes):
            self._pass(number, tokens)
        self._flush()
        self.recorder.end()
        return self.truth

    def _place_fixed(self) -> None:
        """Weights and states: each launch's own, or one for all; several in one range."""
        for part, layers, ops in self._parts():
            for layer in range(layers):
                state = self.allocator.take(4096)
                for index, op in enumerate(ops):
                    for slot, arg in enumerate(op.args):
                        if arg.role == "weight":
                            self.fixed[part, layer, index, slot] = self.allocator.take(self.random.choice((512, 5120)))
                        elif arg.role == "state":
                            self.fixed[part, layer, index, slot] = state
        self.shared = self.allocator.take(4096)
        self.input = self.allocator.take(4096)

    def _parts(self) -> tuple[tuple[str, int, tuple[Op, ...]], ...]:
        program = self.program
        return (
            ("prologue", 1, program.prologue),
            ("layer", program.layers, program.layer),
            ("epilogue", 1, program.epilogue),
        )

    def _initialise(self) -> None:
        order = list(self.fixed.values())
        self.random.shuffle(order)
        kernel = self.recorder.kernel("fill_normal", self._module("init"), (8, 4))
        for address in order:
            self.recorder.launch(kernel, [packed(address, 8), packed(512, 4)], [self._pointer(0, address)])

    def _module(self, image: str) -> str:
        if image not in self.modules:
            self.modules[image] = self.recorder.module(image.encode())
        return self.modules[image]

    def _pass(self, number: int, tokens: int) -> None:
        self.truth.tokens.append(tokens)
        if self.behaviour.copies:
            self.recorder.write("copy", **{"from": 0x5000, "to": self.input, "bytes": 8 * tokens, "kind": "HtoD"})
        if self.behaviour.graph and tokens == 1:
            self._replay(number)
        else:
            self._eager(number, tokens)
        self._between()

    def _eager(self, number: int, tokens: int) -> None:
        self.residual = self.allocator.take(256 * tokens)
        self.previous = self.allocator.take(256 * tokens)
        self.position = 10 + number
        for part, layers, ops in self._parts():
            for layer in range(layers):
                self._ops(part, layer, ops, tokens, number)
        self.allocator.give(self.residual)
        self.allocator.give(self.previous)

    def _replay(self, number: int) -> None:
        """Launch the graph of a pass of one token, captured before its first launch."""
        self._flush()
        if not self.captured:
            self.captured = True
            self.nodes = []
            self._eager(number, 1)
            self._flush()
            self.recorder.write("graph", graph=5, nodes=[*self.nodes, {"type": "memcpy"}])
            self.nodes = None
        self.recorder.write("graph_launch", stream=7, graph=5)

    def _between(self) -> None:
        if self.random.random() < self.behaviour.disturb:
            self.kept.append(self.allocator.take(self.random.choice((512, 4096, 2**16))))
        if self.kept and self.random.random() < self.behaviour.disturb / 2:
            self.allocator.give(self.kept.pop(self.random.randrange(len(self.kept))))
        if self.behaviour.noise:
            for _ in range(self.random.choice((0, 0, 0, 1, 3))):
                kernel = self.recorder.kernel("unrelated", self._module("init"), (4,))
                self.recorder.launch(kernel, [packed(self.random.randrange(9), 4)])
        self._pause()

    def _pause(self) -> None:
        if not self.behaviour.noise or self.random.random() < 0.3:
            self.recorder.time += self.random.choice((0, 10**5, 10**7))

    def _ops(self, part: str, layer: int, ops: tuple[Op, ...], tokens: int, number: int | None) -> None:
        ran = [(i, op) for i, op in enumerate(ops) if op.when == "any" or (op.when == "one") == (tokens == 1)]
        if number is None:
            self.residual = self.previous = self.allocator.take(4096)
            self.position = 0
        for count, (index, op) in enumerate(ran):
            values = self._values(part, layer, index, op, tokens)
            last = part == "epilogue" and count == len(ran) - 1 and number is not None
            place = (part, layer, index)
            if last and self.random.random() < self.behaviour.late:
                self.late.append(lambda v=values, o=op, p=place, n=number: self._tell(v, o, p, n))  # type: ignore[misc]
                continue
            self._tell(values, op, place, number)
            self._flush()

    def _flush(self) -> None:
        for tell in self.late:
            tell()
        self.late = []

    def _tell(self, values: dict[str, Any], op: Op, place: tuple[str, int, int], number: int | None) -> None:
        if self.nodes is not None:
            self.nodes.append({key: values[key] for key in ("kernel", "grid", "block", "shared", "params", "pointers")})
            self.recorder.write("launch", **values, capturing=True)
            return
        self.recorder.launches += 1
        line = self.recorder.write("launch", **values)
        if number is not None:
            self.truth.launches[line] = Known(line, number, place, op)

    def _pointer(self, param: int, address: int, at: int = 0) -> dict[str, Any]:
        return {"param": param, "at": at, "memory": "device", "range": list(self.allocator.range(address))}

    def _values(self, part: str, layer: int, index: int, op: Op, tokens: int) -> dict[str, Any]:
        params: list[bytes] = []
        pointers: list[dict[str, Any]] = []
        written = None
        for slot, arg in enumerate(op.args):
            if arg.role not in POINTERS:
                params.append(self._scalar(arg, tokens))
                continue
            if arg.role == "write":
                address = written = self.allocator.take(arg.width * tokens)
            else:
                address = {
                    "read": self.previous,
                    "residual": self.residual,
                    "shared": self.shared,
                    "input": self.input,
                }.get(arg.role) or self.fixed[part, layer, index, slot]
            pointers.append(self._pointer(len(params), address))
            params.append(packed(address, 8))
        if written is not None:
            if self.previous != self.residual:
                self.allocator.give(self.previous)
            self.previous = written
        if op.struct:
            pointers = [
                {**p, "param": 0, "at": sum(-(-len(x) // 8) * 8 for x in params[: p["param"]])} for p in pointers
            ]
            params = [b"".join(x.ljust(-(-len(x) // 8) * 8, b"\0") for x in params)]
        symbol = f"{op.symbol}_{tokens.bit_length()}" if op.by_size else op.symbol
        kernel = self.recorder.kernel(symbol, self._module(op.image), None if op.opaque else [len(p) for p in params])
        grid = [evaluate(axis, {"tokens": tokens}) for axis in op.grid]
        known = (None, ()) if op.opaque else (params, pointers)
        return launch_values(kernel, *known, grid=grid, stream=op.stream, thread=op.thread)

    def _scalar(self, arg: Arg, tokens: int) -> bytes:
        if arg.role == "position":
            return packed(self.position, 4)
        if isinstance(arg.value, float):
            return packed(arg.value, 4)
        return packed(evaluate(arg.value, {"tokens": tokens}), WIDTHS[arg.role])
