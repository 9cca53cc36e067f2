"""The claims about all passes together, and the passes that the manifest's constants are read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kern.models.config import TransformerConfig
from kern.models.recorded.checks import same
from kern.models.recorded.claims import (
    INSTANCE,
    INSTANCES,
    LITERALS,
    POOL,
    ROPE_TABLE,
    TOKENS,
    WEIGHTS,
    Refuted,
)
from kern.models.recorded.forwards import Call, Forward
from kern.models.recorded.pool import BlockLayout, block_layout
from kern.models.recorded.sources import SOURCES, Source
from kern.models.recorded.wiring import check_forward


@dataclass(frozen=True, slots=True)
class Evidence:
    """A pass of several tokens and one of a single token, which stand for all, and the layout of the pool's blocks.

    Strides from token to token are read from `chunk`: a single token shows none.
    """

    chunk: Forward
    step: Forward
    block: BlockLayout

    def call(self, source: Source) -> Call:
        """The launch that shows a step."""
        return source.calls(self.step if source.single else self.chunk)[0]


def examine(forwards: Sequence[Forward], config: TransformerConfig) -> Evidence:
    """Hold every claim against every pass. Raises Refuted at the first that does not hold."""
    steps = [forward for forward in forwards if forward.tokens == 1]
    chunks = [forward for forward in forwards if forward.tokens > 1]
    if not steps or not chunks:
        counts = ", ".join(str(forward.tokens) for forward in forwards) or "none"
        raise Refuted(TOKENS, f"the tokens of the passes with attention are {counts}", "1, and some number above 1")
    for source in SOURCES:
        _instance(source, forwards)
    _instances(chunks[0], steps[0])
    for forward in forwards:
        check_forward(forward, config)
    evidence = Evidence(
        max(chunks, key=lambda forward: forward.tokens), steps[-1], block_layout(steps[-1].layers[0].cache, config)
    )
    _weights(forwards)
    _pool(forwards, config, evidence.block)
    for forward in forwards:
        same(ROPE_TABLE, forward.layers[0].rotary, "cos_sin_cache", forwards[0].layers[0].rotary, "cos_sin_cache")
    for source in SOURCES:
        _literals(source, chunks if source.single is None else forwards, evidence.call(source))
    return evidence


def _instance(source: Source, forwards: Sequence[Forward]) -> None:
    calls = [call for forward in forwards for call in source.calls(forward)]
    first = calls[0]
    for call in calls:
        kernel = call.launch.kernel
        if kernel.module is None:
            raise Refuted(INSTANCE, f"{call.where}: the module of {kernel.symbol} is not known", "its hash")
        if call.launch.attributes:
            raise Refuted(INSTANCE, f"{call.where}: launched with {dict(call.launch.attributes)}", "no attributes")
        if kernel.key != first.launch.kernel.key:
            raise Refuted(
                INSTANCE,
                f"{call.where}: {kernel.symbol} of module {kernel.module}",
                f"as {first.where}: {first.launch.symbol} of module {first.launch.kernel.module}",
            )


def _instances(chunk: Forward, step: Forward) -> None:
    several, one = chunk.layers[0].attention, step.layers[0].attention
    if several.launch.kernel.key == one.launch.kernel.key:
        module = one.launch.kernel.module
        raise Refuted(INSTANCES, f"{several.where} and {one.where}: module {module}", "two modules")


def _weights(forwards: Sequence[Forward]) -> None:
    owners: dict[int, str] = {}
    for call in _normed(forwards[0]):
        address = int(call["weight"])
        if address in owners:
            raise Refuted(WEIGHTS, f"{call.where}: {call.shown('weight')}, as of {owners[address]}", "another address")
        owners[address] = call.where
    for forward in forwards:
        for call, first in zip(_normed(forward), _normed(forwards[0]), strict=True):
            same(WEIGHTS, call, "weight", first, "weight")


def _normed(forward: Forward) -> Iterator[Call]:
    return (call for call in forward.calls() if call.signature.role in ("norm", "add_norm"))


def _pool(forwards: Sequence[Forward], config: TransformerConfig, block: BlockLayout) -> None:
    owners: dict[int, str] = {}
    for layer in forwards[0].layers:
        address = int(layer.cache["key_cache"])
        if address in owners:
            raise Refuted(
                POOL,
                f"{layer.cache.where}: {layer.cache.shown('key_cache')}, as of {owners[address]}",
                "another address",
            )
        owners[address] = layer.cache.where
    for forward in forwards:
        for layer, first in zip(forward.layers, forwards[0].layers, strict=True):
            same(POOL, layer.cache, "key_cache", first.cache, "key_cache")
            if block_layout(layer.cache, config) != block:
                raise Refuted(POOL, f"{layer.cache.where}: {block_layout(layer.cache, config)}", block)


def _literals(source: Source, forwards: Sequence[Forward], reference: Call) -> None:
    for forward in forwards:
        for call in source.calls(forward):
            for name in source.literals(call):
                if call[name] != reference[name]:
                    raise Refuted(
                        LITERALS, f"{call.where}: {call.shown(name)}", f"as {reference.where}: {reference.shown(name)}"
                    )
