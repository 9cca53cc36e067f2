"""vLLM 0.24 running Qwen3 eagerly, one sequence at a time, with its attention backend TRITON_ATTN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kern.checkpoints.config import TransformerConfig
from kern.recorded.assumptions import Refuted
from kern.recorded.engine import Engine
from kern.recorded.parse_pass import parameters
from kern.recorded.passes import Found, Part
from kern.recorded.vllm.assumptions import CHECKS, SIZES
from kern.recorded.vllm.kv_block_layout import block_layout
from kern.recorded.vllm.param_bindings import SOURCES, TOKEN_STRIDES
from kern.recorded.vllm.signatures import SIGNATURES


def _starts(found: Sequence[Found], config: TransformerConfig) -> list[int]:
    """A pass begins with the norm of its rows: the only one of that width that adds nothing.

    Raises Refuted where there is none, and where what is added to the residual stream has other rows: a head may be as
    wide as a model.
    """
    norms = [
        (at, signature.role, int(parameters(f"line {launch.line}", signature, launch)["hidden_size"]))
        for at, (signature, launch) in enumerate(found)
        if signature.role in ("norm", "add_norm")
    ]
    added = sorted({width for _, role, width in norms if role == "add_norm"})
    if added != [config.hidden]:
        raise Refuted(SIZES, f"the residual stream has rows of {_listed(added)} elements", config.hidden)
    starts = [at for at, role, width in norms if role == "norm" and width == config.hidden]
    if not starts:
        widths = sorted({width for _, role, width in norms if role == "norm"})
        raise Refuted(SIZES, f"norms take rows of {_listed(widths)} elements", config.hidden)
    return starts


def _listed(widths: Sequence[int]) -> str:
    return ", ".join(map(str, widths))


VLLM: Final = Engine(
    name="vllm",
    setup="vLLM 0.24, its attention backend TRITON_ATTN, no graphs and a batch of 1",
    family="qwen3",
    signatures=SIGNATURES,
    head=(Part("input_norm", "norm"),),
    layer=(
        Part("q_norm", "norm"),
        Part("k_norm", "norm"),
        Part("rotary", "rotary"),
        Part("cache", "cache"),
        Part("attention", "attention"),
        Part("reduce", "reduce", single=True),
        Part("add_norm", "add_norm"),
        Part("activation", "activation"),
        Part("after", "add_norm"),  # the norm before the next layer
    ),
    per_layer="attention",
    tokens="num_tokens",
    starts=_starts,
    sources=SOURCES,
    token_strides=TOKEN_STRIDES,
    checks=CHECKS,
    block_layout=block_layout,
)
