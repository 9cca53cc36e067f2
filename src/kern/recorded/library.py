"""The entries of a layer, implemented by the recorded kernels: each step as its launch was, pinned to its module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kern.checkpoints.config import TransformerConfig
from kern.kernels.interfaces import INTERFACES, RECORDED_INTERFACES, params
from kern.manifest.builder import literal
from kern.manifest.params import Param, Scalar
from kern.manifest.types import I64, Arg, Impl, Kernel, Literals, Scratch, ScratchArg, Step, StepArg
from kern.recorded.engine import Source
from kern.recorded.evidence import Evidence
from kern.recorded.passes import Call


def recorded_kernels(evidence: Evidence, config: TransformerConfig) -> dict[str, Kernel]:
    """The entries that the recording has kernels for, over the symbols `tokens` and `seqs`.

    The decode attention takes one sequence: the number is compiled into its reduction.
    """
    interfaces = {**RECORDED_INTERFACES, **INTERFACES}
    steps: defaultdict[str, list[Step]] = defaultdict(list)
    scratch: defaultdict[str, dict[str, Scratch]] = defaultdict(dict)
    for source in evidence.engine.sources:
        steps[source.entry].append(_step(evidence, source, config, interfaces[source.entry]))
        scratch[source.entry] |= source.scratch(evidence.call(source), config)
    return {
        entry: Kernel(params=interfaces[entry], impl=Impl(scratch=scratch[entry], steps=tuple(each)))
        for entry, each in steps.items()
    }


def _step(evidence: Evidence, source: Source, config: TransformerConfig, interface: Sequence[Param]) -> Step:
    call = evidence.call(source)
    launch = call.launch
    abi: list[Param] = []
    args: list[StepArg] = []
    for name, scalar in call.signature.params:
        given = source.bindings.get(name)
        if isinstance(given, int):
            abi.append(interface[given])
            args.append(Arg(arg=given))
        elif given is not None:
            abi += params(given)
            args.append(ScratchArg(scratch=name))
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
