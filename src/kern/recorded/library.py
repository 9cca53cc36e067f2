"""The entries of a layer, implemented by the recorded kernels: each step as its launch was, pinned to its module."""

from __future__ import annotations

from collections import defaultdict

from kern.checkpoints.config import TransformerConfig
from kern.kernels.implementation import Entry
from kern.manifest.builder import literal
from kern.manifest.params import Param, Scalar
from kern.manifest.types import I64, Kernel, Literals, Scratch, Step, StepArg
from kern.recorded.engine import Source
from kern.recorded.evidence import Evidence
from kern.recorded.passes import Call


def recorded_kernels(evidence: Evidence, config: TransformerConfig) -> dict[str, Kernel]:
    """The entries that the recording has kernels for, over the symbols `tokens` and `seqs`.

    The decode attention takes one sequence: the number is compiled into its reduction.
    """
    scratch: defaultdict[str, dict[str, Scratch]] = defaultdict(dict)
    for source in evidence.engine.sources:
        scratch[source.entry] |= source.scratch(evidence.call(source), config)
    entries = {name: Entry(name, shared) for name, shared in scratch.items()}
    steps: defaultdict[str, list[Step]] = defaultdict(list)
    for source in evidence.engine.sources:
        steps[source.entry].append(_step(evidence, source, config, entries[source.entry]))
    return {name: entries[name].kernel(*each) for name, each in steps.items()}


def _step(evidence: Evidence, source: Source, config: TransformerConfig, entry: Entry) -> Step:
    call = evidence.call(source)
    launch = call.launch
    abi: list[Param] = []
    args: list[StepArg] = []
    for name, scalar in call.signature.params:
        if name in source.bindings:
            bound = entry.bind([source.bindings[name]])
            abi += bound[0]
            args += bound[1]
        else:
            abi.append(Param(scalar=scalar or "i64"))
            args.append(_constant(call, name, scalar) if scalar is not None else I64(i64=0))
    assert launch.kernel.module is not None
    return Step(
        symbol=launch.symbol,
        params=tuple(abi),
        block=evidence.block_of(source),
        grid=(source.grid(config)[0], *launch.grid[1:]),
        shared_mem=launch.shared,
        cubin=evidence.engine.module_file(launch.kernel.module),
        sha256=launch.kernel.module,
        args=tuple(args),
    )


def _constant(call: Call, name: str, scalar: Scalar) -> StepArg:
    value = literal(scalar, call[name])
    assert isinstance(value, Literals)
    return value
