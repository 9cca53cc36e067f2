"""Taking the forward passes of a recording apart by an engine's table of parts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import Final

from kern.checkpoints.config import TransformerConfig
from kern.manifest.counts import counted
from kern.mining import Launch
from kern.mining.symbols import short
from kern.recorded.assumptions import BACKEND, LAYERS, ORDER, PARAMETERS, Refuted
from kern.recorded.engine import Engine
from kern.recorded.passes import Call, Found, ParsedPass, Part
from kern.recorded.signatures import Signature, Value

_NAMED: Final = 5
"""Symbols that a refusal names."""
_ATTENTION: Final = re.compile("attention|attn|fmha|flash|sdpa", re.IGNORECASE)


def used(engine: Engine, launches: Sequence[Launch]) -> list[Found]:
    """The launches of the engine's kernels that are used, in order."""
    return [(signature, launch) for launch in launches if (signature := engine.signature(launch.symbol)) is not None]


def parse_passes(
    engine: Engine, launches: Sequence[Launch], config: TransformerConfig, *, ended: bool = True
) -> list[ParsedPass]:
    """The forward passes with attention, each taken apart; an engine runs others to measure its memory.

    Where the process did not end regularly, its last pass may be cut off, and is left out. Raises Refuted where a
    kernel was not launched at all, and where a pass is not that of a model of `config.layers` layers, in order and in
    its parameters.
    """
    found = used(engine, launches)
    _require_backend(engine, launches)
    starts = engine.starts(found, config)
    passes = [found[start:stop] for start, stop in pairwise([*starts, len(found)] if ended else starts)]
    return [
        _parse(engine, index, each, config.layers)
        for index, each in enumerate(passes)
        if any(signature.role == engine.per_layer for signature, _ in each)
    ]


def parameters(where: str, signature: Signature, launch: Launch) -> dict[str, Value]:
    """A launch's parameters by name. Raises Refuted where it has others."""
    if launch.params is None or launch.kernel.layout != signature.layout:
        layout = "unknown parameters" if launch.kernel.layout is None else f"{launch.kernel.layout}"
        raise Refuted(PARAMETERS, f"{where}: {signature.name} is given {layout}", signature.layout)
    return signature.values(launch.params)


def _parse(engine: Engine, index: int, found: Sequence[Found], layers: int) -> ParsedPass:
    signature, first = found[0]
    tokens = int(parameters(f"line {first.line}", signature, first)[engine.tokens])
    count = sum(signature.role == engine.per_layer for signature, _ in found)
    if count != layers:
        times = f"{engine.per_layer} is launched {counted(count, 'time')}"
        raise Refuted(LAYERS, f"pass {index} of {counted(tokens, 'token')}: {times}", layers)
    parts: defaultdict[str, list[Call]] = defaultdict(list)
    for part, call in _calls(engine, index, tokens, found, layers):
        parts[part.name].append(call)
    return ParsedPass(index, tokens, {part.name: tuple(parts[part.name]) for part in (*engine.head, *engine.layer)})


def _calls(engine: Engine, index: int, tokens: int, found: Sequence[Found], layers: int) -> Iterator[tuple[Part, Call]]:
    repeated = [part for part in engine.layer if tokens == 1 or not part.single]
    expected = [(part.name, part) for part in engine.head]
    expected += [(f"layer {layer}, {part.name}", part) for layer in range(layers) for part in repeated]
    for have, want in zip_longest(found, expected):
        name = "after the last layer" if want is None else want[0]
        where = f"{name} (pass {index} of {counted(tokens, 'token')})"
        wanted = "nothing more" if want is None else f"a launch of {_kernel(engine, want[1])}"
        if have is None:
            raise Refuted(ORDER, f"{where}: the pass ends", wanted)
        signature, launch = have
        if want is None or signature.role != want[1].role:
            raise Refuted(ORDER, f"{where}: line {launch.line} launches {signature.name}", wanted)
        values = parameters(f"{where}, line {launch.line}", signature, launch)
        if launch.graph is not None:
            evidence = f"{where}: line {launch.line} launches it from graph {launch.graph}"
            raise Refuted(ORDER, evidence, "a single launch")
        if launch.stream != found[0][1].stream:
            raise Refuted(ORDER, f"{where}: line {launch.line} is on stream {launch.stream}", found[0][1].stream)
        yield want[1], Call(launch, signature, values, name, index, tokens)


def _kernel(engine: Engine, part: Part) -> str:
    return next(signature.name for signature in engine.signatures if signature.role == part.role)


def _require_backend(engine: Engine, launches: Sequence[Launch]) -> None:
    """Raises Refuted where a kernel that is used was launched nowhere in the recording."""
    symbols = {launch.symbol for launch in launches}
    lacking = [s.name for s in engine.signatures if not any(symbol.startswith(s.starts) for symbol in symbols)]
    if lacking:
        others = _others(engine, launches)
        seen = f"but {others}" if others else "nor any other"
        raise Refuted(BACKEND, f"the recording launches none of {', '.join(lacking)}, {seen}", None)


def _others(engine: Engine, launches: Sequence[Launch]) -> str:
    """The kernels that are launched instead: those that seem to be attention, then the most launched."""
    symbols = [launch.symbol for launch in launches if engine.signature(launch.symbol) is None]
    counts = Counter((_ATTENTION.search(symbol) is None, short(symbol)) for symbol in symbols)
    likely = sorted(counts, key=lambda kind: (kind[0], -counts[kind], kind[1]))[:_NAMED]
    return ", ".join(f"{kind[1]} ({counted(counts[kind], 'time')})" for kind in likely)
