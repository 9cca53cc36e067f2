"""The entries of a layer, implemented by the recorded kernels: each step as its launch was, pinned to its module."""

from __future__ import annotations

from typing import TypeAlias

from kern.checkpoints.config import TransformerConfig
from kern.kernels.interfaces import INTERFACES, RECORDED_INTERFACES, params
from kern.manifest.builder import literal
from kern.manifest.expressions import Expr, Sym
from kern.manifest.params import Param, Scalar
from kern.manifest.types import I64, Arg, Dim3, Impl, Kernel, Literals, Scratch, ScratchArg, Step, StepArg
from kern.recorded.evidence import Evidence
from kern.recorded.parse_pass import Call
from kern.recorded.vllm.param_bindings import SOURCES, Wires
from kern.recorded.vllm.wiring import queries_a_block

Grid: TypeAlias = tuple[Expr, Expr, Expr]

_TOKENS = Sym(sym="tokens")


def recorded_kernels(evidence: Evidence, config: TransformerConfig) -> dict[str, Kernel]:
    """The entries that the recording has kernels for, over the symbols `tokens` and `seqs`.

    The decode attention takes one sequence: the number is compiled into its reduction.
    """
    steps: dict[str, list[Step]] = {}
    for source in SOURCES:
        call = evidence.call(source)
        step = _step(call, source.wires, _grid(source.entry, call, config), evidence.block_of(source))
        steps.setdefault(source.entry, []).append(step)
    segments = _segments(evidence, config)
    return {
        entry: Kernel(
            params=INTERFACES[entry] if entry in INTERFACES else RECORDED_INTERFACES[entry],
            impl=Impl(scratch=segments if entry == "attention_decode_unfused" else {}, steps=tuple(each)),
        )
        for entry, each in steps.items()
    }


def module_file(sha256: str) -> str:
    """The name of a recorded module's file in an artifact."""
    return f"vllm-{sha256[:16]}.cubin"


def _step(call: Call, wires: Wires, grid: Grid, block: Dim3) -> Step:
    abi: list[Param] = []
    args: list[StepArg] = []
    for name, scalar in call.signature.params:
        if name in wires:
            kind, given = wires[name]
            abi += params(kind)
            args.append(Arg(arg=given) if isinstance(given, int) else ScratchArg(scratch=given))
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
            return _TOKENS * config.heads, y, z
        case "k_norm_unfused", _:
            return _TOKENS * config.kv_heads, y, z
        case _, "attention":
            # tokens // queries + 1: the blocks of one sequence, and one for what the division leaves
            return (_TOKENS + 1).over(queries_a_block(config)), y, z
        case _:
            return _TOKENS, y, z


def _segments(evidence: Evidence, config: TransformerConfig) -> dict[str, Scratch]:
    """What the parts of one token's attention leave for the reduction: sums, maxima and weights of each part."""
    parts = evidence.step.layers[0].attention.launch.grid[2]
    return {
        "segm_output": Scratch(dtype="f32", shape=(config.heads, parts, config.head_dim)),
        "segm_max": Scratch(dtype="f32", shape=(config.heads, parts)),
        "segm_expsum": Scratch(dtype="f32", shape=(config.heads, parts)),
    }
