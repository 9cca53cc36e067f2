"""Forward passes of a recording, taken apart: which launch is which part of which layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from kern.manifest.counts import counted
from kern.mining import Launch, Pass
from kern.models.recorded.claims import BACKEND, LAYERS, ORDER, PARAMETERS, TOKENS, Refuted
from kern.models.recorded.signatures import SIGNATURES, Role, Signature, Value

_NAMED: Final = 6
"""Symbols that a refusal names."""
_SYMBOL: Final = 60
"""Characters of a symbol that it shows."""


@dataclass(frozen=True, slots=True)
class Call:
    """A launch in its place: `part` says where it stands in the pass, as `layer 3, k_norm`."""

    launch: Launch
    signature: Signature
    part: str
    index: int
    tokens: int

    def __getitem__(self, name: str) -> Value:
        """A parameter's value; an address is an integer."""
        assert self.launch.params is not None
        return self.signature.value(name, self.launch.params[self.signature.index(name)])

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
    """A forward pass over `tokens` tokens; `index` is its number in the recording."""

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


def forward(mined: Pass, layers: int) -> Forward | None:
    """Take a pass apart; None for one without attention, as an engine runs to measure its memory.

    Raises Refuted where the launches are not those of a model of `layers` layers, in order and in their parameters.
    """
    index = mined.index
    found = [(signature, launch) for launch in mined.launches if (signature := _signature(launch.symbol)) is not None]
    count = sum(signature.role == "attention" for signature, _ in found)
    if not count:
        return None
    tokens = _tokens(mined, *found[0])
    if count != layers:
        raise Refuted(LAYERS, f"pass {index} of {counted(tokens, 'token')} has {count} launches of attention", layers)
    parts = _parts(tokens)
    expected = [("input_norm", "norm"), *(part for _ in range(layers) for part in parts)]
    calls = list(_calls(index, tokens, found, expected, len(parts)))
    apart = [calls[1 + layer * len(parts) :][: len(parts)] for layer in range(layers)]
    names = [name for name, _ in parts]
    return Forward(
        index,
        tokens,
        calls[0],
        tuple(Layer(**dict(zip(names, each, strict=True))) for each in apart),
    )


def _tokens(mined: Pass, signature: Signature, first: Launch) -> int:
    """The rows that the first norm takes; that is what the analysis found, where it found any."""
    place = f"pass {mined.index}, line {first.line}"
    if signature.role != "norm":
        raise Refuted(ORDER, f"{place}: it begins with {signature.starts}", f"a launch of {_family('norm')}")
    _require_layout(place, signature, first)
    assert first.params is not None
    tokens = int(signature.value("num_tokens", first.params[signature.index("num_tokens")]))
    if mined.tokens not in (None, tokens):
        raise Refuted(TOKENS, f"{place}: the first norm takes {tokens} rows", f"the pass's {mined.tokens} tokens")
    return tokens


def _require_layout(place: str, signature: Signature, launch: Launch) -> None:
    if launch.params is None or launch.kernel.layout != signature.layout:
        layout = "unknown parameters" if launch.kernel.layout is None else f"{launch.kernel.layout}"
        raise Refuted(PARAMETERS, f"{place}: {signature.starts} is given {layout}", signature.layout)


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
            raise Refuted(ORDER, f"{place}: line {launch.line} launches {signature.starts}", wanted)
        _require_layout(f"{place}, line {launch.line}", signature, launch)
        yield Call(launch, signature, part, index, tokens)


def _signature(symbol: str) -> Signature | None:
    return next((signature for signature in SIGNATURES if symbol.startswith(signature.starts)), None)


def _family(role: str) -> str:
    return next(signature.starts for signature in SIGNATURES if signature.role == role)


def require_backend(launches: Sequence[Launch]) -> None:
    """Raises Refuted where a kernel that this provider wires was launched nowhere in the recording."""
    symbols = {launch.symbol for launch in launches}
    lacking = [s.starts for s in SIGNATURES if not any(symbol.startswith(s.starts) for symbol in symbols)]
    if not lacking:
        return
    raise Refuted(BACKEND, f"the recording launches none of {', '.join(lacking)}, but {_most_launched(launches)}", None)


def _most_launched(launches: Sequence[Launch]) -> str:
    counts: dict[str, int] = {}
    for launch in launches:
        counts[launch.symbol] = counts.get(launch.symbol, 0) + 1
    most = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))[:_NAMED]
    if not most:
        return "nothing at all"
    return ", ".join(f"{symbol[:_SYMBOL]} ({counts[symbol]} times)" for symbol in most)
