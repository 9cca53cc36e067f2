"""The assumptions checked against every pass of a recording, and the passes that constants are read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kern.checkpoints.config import TransformerConfig
from kern.manifest.expressions import evaluate
from kern.manifest.types import Dim3
from kern.mining import Launch
from kern.models.unfused_layers import BlockLayout
from kern.recorded.assumptions import GRIDS, INSTANCE, LAUNCHES, LITERALS, TOKENS, Refuted
from kern.recorded.engine import Engine, Source
from kern.recorded.parse_pass import parse_passes
from kern.recorded.passes import Call, ParsedPass


@dataclass(frozen=True, slots=True)
class Evidence:
    """A pass of several tokens and one of a single token, which stand for all, and the layout of the pool's blocks.

    Strides from token to token are read from `chunk`: a single token shows none.
    """

    engine: Engine
    chunk: ParsedPass
    step: ParsedPass
    block: BlockLayout

    def call(self, source: Source) -> Call:
        """The launch that shows the parameters of a step."""
        return source.calls(self.step if source.single else self.chunk)[0]

    def block_of(self, source: Source) -> Dim3:
        """The threads of a block. Where they depend on the tokens (the norms'), as for a single one: any will do."""
        return source.calls(self.chunk if source.single is False else self.step)[0].launch.block


def gather_evidence(
    engine: Engine, launches: Sequence[Launch], config: TransformerConfig, *, ended: bool = True
) -> Evidence:
    """Check every assumption against every pass with attention, of a process that ended regularly or did not.

    Raises Refuted at the first that does not hold.
    """
    passes = parse_passes(engine, launches, config, ended=ended)
    steps = [each for each in passes if each.tokens == 1]
    chunks = [each for each in passes if each.tokens > 1]
    if not steps or not chunks:
        counts = ", ".join(str(each.tokens) for each in passes) or "none"
        raise Refuted(TOKENS, f"the tokens of the passes with attention are {counts}", "1, and some number above 1")
    for source in engine.sources:
        calls = [call for each in passes for call in source.calls(each)]
        for call in calls:
            _check_instance(call, calls[0])
            _check_grid(call, source, config)
    for each in passes:
        for assumption, checks in engine.checks.items():
            for check in checks:
                for problem in check(each, passes[0], config):
                    raise Refuted(assumption, *problem)
    chunk = max(chunks, key=lambda each: each.tokens)
    evidence = Evidence(engine, chunk, steps[-1], engine.block_layout(steps[-1], config))
    for source in engine.sources:
        for each in passes:
            for call in source.calls(each):
                _check_constants(call, source, evidence)
    return evidence


def _check_instance(call: Call, first: Call) -> None:
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


def _check_grid(call: Call, source: Source, config: TransformerConfig) -> None:
    grid = call.launch.grid
    extents = zip(source.grid(config), grid, strict=True)
    wanted = [size if extent is None else evaluate(extent, {"tokens": call.tokens}) for extent, size in extents]
    if wanted != list(grid):
        raise Refuted(GRIDS, f"{call.where}: the grid is {list(grid)}", wanted)


def _check_constants(call: Call, source: Source, evidence: Evidence) -> None:
    """What is written into the manifest: scalars without a binding, and what a launch has besides parameters.

    The first extent of a grid follows from tokens and heads.
    """
    reference = evidence.call(source)
    for name in evidence.engine.literals(source, call):
        if call[name] != reference[name]:
            raise Refuted(
                LITERALS, f"{call.where}: {call.shown(name)}", f"as {reference.where}: {reference.shown(name)}"
            )
    launch, other = call.launch, reference.launch
    rows: list[tuple[str, object, object]] = [("shared memory", launch.shared, other.shared)]
    rows += [("other extents of the grid", launch.grid[1:], other.grid[1:])]
    if source.single is False or call.tokens == 1:
        rows += [("block", launch.block, evidence.block_of(source))]
    for what, found, expected in rows:
        if found != expected:
            raise Refuted(LAUNCHES, f"{call.where}: the {what}: {found}", f"{expected}, as in other launches")
