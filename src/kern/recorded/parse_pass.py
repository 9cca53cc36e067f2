"""Forward passes of a recording, taken apart: which launch is which part of which layer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Final

from kern.checkpoints.config import TransformerConfig
from kern.manifest.counts import counted
from kern.mining import Launch
from kern.mining.symbols import short
from kern.recorded.vllm.assumptions import BACKEND, LAYERS, ORDER, PARAMETERS, SIZES, Refuted
from kern.recorded.vllm.signatures import SIGNATURES, Role, Signature, Value

_NAMED: Final = 5
"""Symbols that a refusal names."""
_ATTENTION: Final = re.compile("attention|attn|fmha|flash|sdpa", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Call:
    """A launch in its place: `part` says where it stands in the pass, as `layer 3, k_norm`."""

    launch: Launch
    signature: Signature
    values: Mapping[str, Value]
    part: str
    index: int
    tokens: int

    def __getitem__(self, name: str) -> Value:
        """A parameter's value; an address is an integer."""
        return self.values[name]

    @property
    def where(self) -> str:
        """The launch, for a message."""
        return f"{self.part} (pass {self.index} of {counted(self.tokens, 'token')}, line {self.launch.line})"

    def shown(self, name: str) -> str:
        """A parameter and its value, for a message."""
        value = self[name]
        is_address = dict(self.signature.params)[name] is None
        return f"`{name}` = {f'{value:#x}' if is_address else value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The launches of a decoder layer. `reduce` follows the attention of a single token; `after` norms for the next."""

    q_norm: Call
    k_norm: Call
    rotary: Call
    cache: Call
    attention: Call
    reduce: Call | None = None
    add_norm: Call
    activation: Call
    after: Call

    def calls(self) -> Iterator[Call]:
        """All of them, in order."""
        yield from (self.q_norm, self.k_norm, self.rotary, self.cache, self.attention)
        if self.reduce is not None:
            yield self.reduce
        yield from (self.add_norm, self.activation, self.after)


@dataclass(frozen=True, slots=True)
class Forward:
    """A forward pass over `tokens` tokens; `index` counts the passes of the recording from 0."""

    index: int
    tokens: int
    input_norm: Call
    layers: tuple[Layer, ...]

    def calls(self) -> Iterator[Call]:
        """All launches that are looked at, in order."""
        yield self.input_norm
        for layer in self.layers:
            yield from layer.calls()


def _parts(tokens: int) -> tuple[tuple[str, Role], ...]:
    """A layer's launches in order: the field of Layer, and what kind of kernel it is."""
    reduce: tuple[tuple[str, Role], ...] = (("reduce", "reduce"),) if tokens == 1 else ()
    return (
        ("q_norm", "norm"),
        ("k_norm", "norm"),
        ("rotary", "rotary"),
        ("cache", "cache"),
        ("attention", "attention"),
        *reduce,
        ("add_norm", "add_norm"),
        ("activation", "activation"),
        ("after", "add_norm"),
    )


def wired(launches: Sequence[Launch]) -> list[tuple[Signature, Launch]]:
    """The launches of kernels that this provider wires, in order."""
    return [(signature, launch) for launch in launches if (signature := _signature(launch.symbol)) is not None]


def forwards(launches: Sequence[Launch], config: TransformerConfig, *, ended: bool = True) -> list[Forward]:
    """The forward passes with attention, each taken apart; an engine runs others to measure its memory.

    A pass begins with the norm of its rows: the only one of that width that adds nothing. Where the process did not
    end regularly, its last pass may be cut off, and is left out. Raises Refuted where there is none, or a pass is not
    that of a model of `config.layers` layers, in order and in its parameters.
    """
    known = wired(launches)
    _require_width(known, config.hidden)
    starts = [at for at, each in enumerate(known) if each[0].role == "norm" and _rows(*each)[1] == config.hidden]
    if not starts:
        widths = sorted({_rows(*each)[1] for each in known if each[0].role == "norm"})
        raise Refuted(SIZES, f"norms take rows of {', '.join(map(str, widths))} elements", config.hidden)
    passes = [known[start:stop] for start, stop in pairwise([*starts, len(known)] if ended else starts)]
    return [
        _forward(index, found, config.layers)
        for index, found in enumerate(passes)
        if any(signature.role == "attention" for signature, _ in found)
    ]


def _require_width(known: Sequence[tuple[Signature, Launch]], hidden: int) -> None:
    """Raises Refuted where what is added to the residual stream has other rows: a head may be as wide as a model."""
    widths = sorted({_rows(*each)[1] for each in known if each[0].role == "add_norm"})
    if widths != [hidden]:
        raise Refuted(SIZES, f"the residual stream has rows of {', '.join(map(str, widths))} elements", hidden)


def _rows(signature: Signature, norm: Launch) -> tuple[int, int]:
    """The number and the width of the rows that a norm takes."""
    _require_layout(f"line {norm.line}", signature, norm)
    assert norm.params is not None
    values = signature.values(norm.params)
    return int(values["num_tokens"]), int(values["hidden_size"])


def _forward(index: int, found: Sequence[tuple[Signature, Launch]], layers: int) -> Forward:
    tokens, _ = _rows(*found[0])
    count = sum(signature.role == "attention" for signature, _ in found)
    if count != layers:
        times = f"attention is launched {counted(count, 'time')}"
        raise Refuted(LAYERS, f"pass {index} of {counted(tokens, 'token')}: {times}", layers)
    parts = _parts(tokens)
    expected = [("input_norm", "norm"), *(part for _ in range(layers) for part in parts)]
    calls = list(_calls(index, tokens, found, expected, len(parts)))
    apart = [calls[1 + layer * len(parts) :][: len(parts)] for layer in range(layers)]
    names = [name for name, _ in parts]
    return Forward(index, tokens, calls[0], tuple(Layer(**dict(zip(names, each, strict=True))) for each in apart))


def _require_layout(place: str, signature: Signature, launch: Launch) -> None:
    if launch.params is None or launch.kernel.layout != signature.layout:
        layout = "unknown parameters" if launch.kernel.layout is None else f"{launch.kernel.layout}"
        raise Refuted(PARAMETERS, f"{place}: {signature.name} is given {layout}", signature.layout)


def _calls(
    index: int,
    tokens: int,
    found: Sequence[tuple[Signature, Launch]],
    expected: Sequence[tuple[str, str]],
    a_layer: int,
) -> Iterator[Call]:
    for number, (have, want) in enumerate(zip_longest(found, expected)):
        part = "after the last layer" if want is None else want[0]
        if number and want is not None:
            part = f"layer {(number - 1) // a_layer}, {part}"
        place = f"{part} (pass {index} of {counted(tokens, 'token')})"
        if have is None:
            raise Refuted(ORDER, f"{place}: the pass ends", f"a launch of {_family(want[1])}")
        signature, launch = have
        if want is None or signature.role != want[1]:
            wanted = "nothing more" if want is None else f"a launch of {_family(want[1])}"
            raise Refuted(ORDER, f"{place}: line {launch.line} launches {signature.name}", wanted)
        _require_layout(f"{place}, line {launch.line}", signature, launch)
        if launch.graph is not None:
            raise Refuted(
                ORDER, f"{place}: line {launch.line} launches it from graph {launch.graph}", "a single launch"
            )
        if launch.stream != found[0][1].stream:
            raise Refuted(ORDER, f"{place}: line {launch.line} is on stream {launch.stream}", found[0][1].stream)
        assert launch.params is not None
        yield Call(launch, signature, signature.values(launch.params), part, index, tokens)


def _signature(symbol: str) -> Signature | None:
    return next((signature for signature in SIGNATURES if symbol.startswith(signature.starts)), None)


def _family(role: str) -> str:
    return next(signature.name for signature in SIGNATURES if signature.role == role)


def require_backend(launches: Sequence[Launch]) -> None:
    """Raises Refuted where a kernel that this provider wires was launched nowhere in the recording."""
    symbols = {launch.symbol for launch in launches}
    lacking = [s.name for s in SIGNATURES if not any(symbol.startswith(s.starts) for symbol in symbols)]
    if lacking:
        others = _others(launches)
        evidence = (
            f"the recording launches none of {', '.join(lacking)}, {f'but {others}' if others else 'nor any other'}"
        )
        raise Refuted(BACKEND, evidence, None)


def _others(launches: Sequence[Launch]) -> str:
    """The kernels that are launched in their place: those that seem to be attention, then the most launched."""
    symbols = [launch.symbol for launch in launches if _signature(launch.symbol) is None]
    counts = Counter((_ATTENTION.search(symbol) is None, short(symbol)) for symbol in symbols)
    likely = sorted(counts, key=lambda kind: (kind[0], -counts[kind], kind[1]))[:_NAMED]
    return ", ".join(f"{kind[1]} ({counted(counts[kind], 'time')})" for kind in likely)
