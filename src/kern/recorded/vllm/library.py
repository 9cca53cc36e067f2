"""The entries of a layer, implemented by the recorded kernels: each step as its launch was, pinned to its module."""

from __future__ import annotations

from kern.checkpoints.config import TransformerConfig
from kern.kernels.implementation import TOKENS, Entry, Grid
from kern.manifest.builder import literal
from kern.manifest.params import Param, Scalar
from kern.manifest.types import I64, Dim3, Kernel, Literals, Scratch, Step, StepArg
from kern.recorded.vllm.evidence import Evidence
from kern.recorded.vllm.param_bindings import SOURCES, Wires
from kern.recorded.vllm.parse_pass import Call
from kern.recorded.vllm.wiring import queries_a_block


def recorded_kernels(evidence: Evidence, config: TransformerConfig) -> dict[str, Kernel]:
    """The entries that the recording has kernels for, over the symbols `tokens` and `seqs`.

    The decode attention takes one sequence: the number is compiled into its reduction.
    """
    segments = _segments(evidence, config)
    entries = {
        source.entry: Entry(source.entry, segments if source.entry == "attention_decode_unfused" else {})
        for source in SOURCES
    }
    steps: dict[str, list[Step]] = {}
    for source in SOURCES:
        call = evidence.call(source)
        grid = _grid(source.entry, call, config)
        step = _step(call, entries[source.entry], source.wires, grid, evidence.block_of(source))
        steps.setdefault(source.entry, []).append(step)
    return {name: entries[name].kernel(*each) for name, each in steps.items()}


def module_file(sha256: str) -> str:
    """The name of a recorded module's file in an artifact."""
    return f"vllm-{sha256[:16]}.cubin"


def _step(call: Call, entry: Entry, wires: Wires, grid: Grid, block: Dim3) -> Step:
    abi: list[Param] = []
    args: list[StepArg] = []
    for name, scalar in call.signature.params:
        if name in wires:
            bound = entry.bind([wires[name]])
            abi += bound[0]
            args += bound[1]
        else:
            abi.append(Param(scalar=scalar or "i64"))
            args.append(_constant(call, name, scalar) if scalar is not None else I64(i64=0))
    launch = call.launch
    assert launch.kernel.module is not None
    return Step(
        symbol=launch.symbol,
        params=tuple(abi),
        block=block,
        grid=grid,
        shared_mem=launch.shared,
        cubin=module_file(launch.kernel.module),
        sha256=launch.kernel.module,
        args=tuple(args),
    )


def _constant(call: Call, name: str, scalar: Scalar) -> StepArg:
    value = literal(scalar, call[name])
    assert isinstance(value, Literals)
    return value


def _grid(entry: str, call: Call, config: TransformerConfig) -> Grid:
    """The grid as an expression of tokens; that it gives the recorded ones is one of the claims."""
    _, y, z = call.launch.grid
    match entry, call.signature.role:
        case "q_norm_unfused", _:
            return TOKENS * config.heads, y, z
        case "k_norm_unfused", _:
            return TOKENS * config.kv_heads, y, z
        case _, "attention":
            # tokens // queries + 1: the blocks of one sequence, and one for what the division leaves
            return (TOKENS + 1).over(queries_a_block(config)), y, z
        case _:
            return TOKENS, y, z


def _segments(evidence: Evidence, config: TransformerConfig) -> dict[str, Scratch]:
    """What the parts of one token's attention leave for the reduction: sums, maxima and weights of each part."""
    parts = evidence.step.layers[0].attention.launch.grid[2]
    return {
        "segm_output": Scratch(dtype="f32", shape=(config.heads, parts, config.head_dim)),
        "segm_max": Scratch(dtype="f32", shape=(config.heads, parts)),
        "segm_expsum": Scratch(dtype="f32", shape=(config.heads, parts)),
    }
