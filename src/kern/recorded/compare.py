"""Checks of a pass's parameters, as rows of an engine's table of assumptions.

A reference `q_norm.input` is the parameter `input` of the part `q_norm`, in every layer that launches it. A check is
called with a pass, the first pass of the recording and the config, and yields what the pass shows otherwise:

    Assumption("views", "…"): (same("k_norm.input", "q_norm.input", lambda c: c.q_size * BF16_BYTES),)

holds where each layer's `k_norm` reads so many bytes behind what its `q_norm` reads.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from typing import Literal, TypeAlias

from kern.checkpoints.config import TransformerConfig
from kern.recorded.passes import Call, ParsedPass
from kern.recorded.signatures import Value

Problem: TypeAlias = tuple[str, object]
"""What a pass shows, and what it would have to show."""
Check: TypeAlias = Callable[[ParsedPass, ParsedPass, TransformerConfig], Iterator[Problem]]
_Pair: TypeAlias = tuple[Call, str, Call, str]
"""A parameter and another one, each with its launch."""
Size: TypeAlias = Literal["tokens", "hidden", "ffn", "heads", "kv_heads", "head_dim", "q_size", "kv_size", "qkv_size"]
"""The tokens of a pass, or a size of the config."""
Expected: TypeAlias = Value | Size | Callable[[TransformerConfig, int], Value]
"""A value, a size, or what a function makes of the config and the tokens of the pass."""


def expect(parts: str, **params: Expected) -> Check:
    """Parameters of the parts, separated by spaces, have these values."""

    def check(each: ParsedPass, first: ParsedPass, config: TransformerConfig) -> Iterator[Problem]:
        values = {name: _expected(expected, config, each.tokens) for name, expected in params.items()}
        for call in (call for part in parts.split() for call in each.parts[part]):
            for name, value in values.items():
                if call[name] != value:
                    yield f"{call.where}: {call.shown(name)}", value

    return check


def same(left: str, right: str, plus: Callable[[TransformerConfig], int] = lambda config: 0) -> Check:
    """One parameter is the other one of the same layer, plus so many bytes."""
    return lambda each, first, config: _other(_pairs(each, left, right), plus(config))


def differ(left: str, right: str) -> Check:
    """One parameter is not the other one of the same layer."""
    return lambda each, first, config: (
        (f"{call.where}: {call.shown(name)}, as {other.where} has `{other_name}`", "another address")
        for call, name, other, other_name in _pairs(each, left, right)
        if call[name] == other[other_name]
    )


def one(*references: str, always: bool = False) -> Check:
    """A parameter is the same in all layers of a pass; with `always`, in all passes too."""
    return lambda each, first, config: _other(
        (call, name, *next(_named(first if always else each, reference)))
        for reference in references
        for call, name in _named(each, reference)
    )


def own(*references: str) -> Check:
    """Each launch has its own address, which is the same in all passes."""

    def check(each: ParsedPass, first: ParsedPass, config: TransformerConfig) -> Iterator[Problem]:
        owners: dict[Value, str] = {}
        for call, name in (found for reference in references for found in _named(each, reference)):
            if call[name] in owners:
                yield f"{call.where}: {call.shown(name)}, as of {owners[call[name]]}", "another address"
            owners[call[name]] = call.where
        for reference in references:
            pairs = zip(_named(each, reference), _named(first, reference), strict=True)
            yield from _other((*one, *other) for one, other in pairs)

    return check


def several(*checks: Check, single: bool = False) -> Check:
    """The checks, for passes of several tokens only, or with `single` for those of one token only."""
    return lambda each, first, config: (
        problem for check in checks if single == (each.tokens == 1) for problem in check(each, first, config)
    )


def exact_instances(each: ParsedPass, first: ParsedPass, config: TransformerConfig) -> Iterator[Problem]:
    """Every kernel is one of the instances that may be used."""
    for call in each.calls():
        if not call.launch.symbol.startswith(call.signature.exact):
            yield f"{call.where}: the kernel is {call.launch.symbol}", f"{call.signature.exact}…"


def other_kernel(part: str) -> Check:
    """A part is another kernel in passes of one token than in passes of several."""

    def check(each: ParsedPass, first: ParsedPass, config: TransformerConfig) -> Iterator[Problem]:
        call, other = each.parts[part][0], first.parts[part][0]
        if (each.tokens == 1) != (first.tokens == 1) and call.launch.kernel.key == other.launch.kernel.key:
            yield f"{call.where} and {other.where}: module {call.launch.kernel.module}", "two modules"

    return check


def as_f32(value: float) -> float:
    """The float32 nearest to `value`."""
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    return float(rounded)


def _expected(expected: Expected, config: TransformerConfig, tokens: int) -> Value:
    if callable(expected):
        return expected(config, tokens)
    if isinstance(expected, str):
        size: int = tokens if expected == "tokens" else getattr(config, expected)
        return size
    return expected


def _named(each: ParsedPass, reference: str) -> Iterator[tuple[Call, str]]:
    part, _, name = reference.partition(".")
    return ((call, name) for call in each.parts[part])


def _pairs(each: ParsedPass, left: str, right: str) -> Iterator[_Pair]:
    """Each layer's two parameters. The launch before the layers goes with every layer's."""
    others = cycle(_named(each, right))
    return ((call, name, *next(others)) for call, name in _named(each, left))


def _other(pairs: Iterable[_Pair], plus: int = 0) -> Iterator[Problem]:
    """The pairs whose first parameter is not the second, plus so many bytes."""
    what = f"{plus} bytes behind what" if plus else "what"
    for call, name, other, other_name in pairs:
        if call[name] != other[other_name] + plus:
            yield f"{call.where}: {call.shown(name)}", f"{what} {other.where} has: {other.shown(other_name)}"
