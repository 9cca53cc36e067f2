"""The claims about all passes together, and the passes that the manifest's constants are read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kern.checkpoints.config import TransformerConfig
from kern.manifest.types import Dim3
from kern.mining import Launch
from kern.models.unfused_layers import BlockLayout
from kern.recorded.compare import distinct, same
from kern.recorded.parse_pass import Call, Forward, forwards, require_backend
from kern.recorded.vllm.assumptions import (
    INSTANCE,
    INSTANCES,
    LAUNCHES,
    LITERALS,
    POOL,
    ROPE_TABLE,
    TOKENS,
    WEIGHTS,
    Refuted,
)
from kern.recorded.vllm.kv_block_layout import block_layout
from kern.recorded.vllm.param_bindings import SOURCES, Source
from kern.recorded.vllm.wiring import check_forward


@dataclass(frozen=True, slots=True)
class Evidence:
    """A pass of several tokens and one of a single token, which stand for all, and the layout of the pool's blocks.

    Strides from token to token are read from `chunk`: a single token shows none.
    """

    chunk: Forward
    step: Forward
    block: BlockLayout

    def call(self, source: Source) -> Call:
        """The launch that shows the parameters of a step."""
        return source.calls(self.step if source.single else self.chunk)[0]

    def block_of(self, source: Source) -> Dim3:
        """The threads of a block. Where they depend on the tokens (the norms'), as for a single one: any will do."""
        return source.calls(self.chunk if source.single is False else self.step)[0].launch.block


def examine(launches: Sequence[Launch], config: TransformerConfig, *, ended: bool = True) -> Evidence:
    """Hold every claim against every pass with attention, of a process that ended regularly or did not.

    Raises Refuted at the first that does not hold.
    """
    require_backend(launches)
    passes = forwards(launches, config, ended=ended)
    steps = [each for each in passes if each.tokens == 1]
    chunks = [each for each in passes if each.tokens > 1]
    if not steps or not chunks:
        counts = ", ".join(str(each.tokens) for each in passes) or "none"
        raise Refuted(TOKENS, f"the tokens of the passes with attention are {counts}", "1, and some number above 1")
    for source in SOURCES:
        _instance(source, passes)
    _instances(chunks[0], steps[0])
    for each in passes:
        check_forward(each, config)
    evidence = Evidence(
        max(chunks, key=lambda each: each.tokens), steps[-1], block_layout(steps[-1].layers[0].cache, config)
    )
    _weights(passes)
    _pool(passes, config, evidence.block)
    for each in passes:
        same(ROPE_TABLE, each.layers[0].rotary, "cos_sin_cache", passes[0].layers[0].rotary, "cos_sin_cache")
    for source in SOURCES:
        _literals(source, passes, evidence.call(source))
        _launches(source, passes, evidence)
    return evidence


def _instance(source: Source, passes: Sequence[Forward]) -> None:
    calls = [call for each in passes for call in source.calls(each)]
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


def _weights(passes: Sequence[Forward]) -> None:
    distinct(WEIGHTS, _normed(passes[0]), "weight")
    for each in passes:
        for call, first in zip(_normed(each), _normed(passes[0]), strict=True):
            same(WEIGHTS, call, "weight", first, "weight")


def _normed(each: Forward) -> Iterator[Call]:
    return (call for call in each.calls() if call.signature.role in ("norm", "add_norm"))


def _pool(passes: Sequence[Forward], config: TransformerConfig, block: BlockLayout) -> None:
    distinct(POOL, (layer.cache for layer in passes[0].layers), "key_cache")
    for each in passes:
        for layer, first in zip(each.layers, passes[0].layers, strict=True):
            same(POOL, layer.cache, "key_cache", first.cache, "key_cache")
            if block_layout(layer.cache, config) != block:
                raise Refuted(POOL, f"{layer.cache.where}: {block_layout(layer.cache, config)}", block)


def _literals(source: Source, passes: Sequence[Forward], reference: Call) -> None:
    for each in passes:
        for call in source.calls(each):
            for name in source.literals(call):
                if call[name] != reference[name]:
                    raise Refuted(
                        LITERALS, f"{call.where}: {call.shown(name)}", f"as {reference.where}: {reference.shown(name)}"
                    )


def _launches(source: Source, passes: Sequence[Forward], evidence: Evidence) -> None:
    """What a step's launch has beside parameters. The first extent of a grid follows from tokens and heads."""
    reference, block = evidence.call(source), evidence.block_of(source)
    for each in passes:
        for call in source.calls(each):
            _as_others(call, "shared memory", call.launch.shared, reference.launch.shared)
            _as_others(call, "further extents of the grid", call.launch.grid[1:], reference.launch.grid[1:])
            if source.single is False or each.tokens == 1:
                _as_others(call, "block", call.launch.block, block)


def _as_others(call: Call, what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Refuted(LAUNCHES, f"{call.where}: the {what}: {found}", f"{expected}, as in other launches")
