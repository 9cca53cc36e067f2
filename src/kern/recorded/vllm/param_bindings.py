"""Where each step of an entry comes from: the parts of a pass that show it, its grid, and its parameters' bindings.

The parameters without a binding are those that the bf16 instances never follow: scales of quantised keys and values,
the other mode's outputs, memory that Triton itself might want. An instance that did follow one would fault, not read
garbage.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kern.checkpoints.config import TransformerConfig
from kern.contracts.text import TOKENS
from kern.manifest.types import Scratch
from kern.recorded.engine import Bindings, Grid, Source
from kern.recorded.passes import Call

TOKEN_STRIDES: Final = frozenset({"input_stride_d3", "query_stride", "key_stride", "value_stride"})
"""Strides from token to token that an engine may give any value where there is but one token."""

_NORMED: Final[Bindings] = {"weight": "weight", "epsilon": "eps"}
_NORM: Final[Bindings] = {"out": "y", "input": "x", **_NORMED, "num_tokens": "rows", "hidden_size": "width"}
_ADD_NORM: Final[Bindings] = {
    "input": "delta",
    "residual": "x",
    **_NORMED,
    "num_tokens": "tokens",
    "hidden_size": "hidden",
}
_ROTARY: Final[Bindings] = {"query": "q", "key": "k", "positions": "positions", "cos_sin_cache": "cos_sin"}
_POOL: Final[Bindings] = {"key_cache": "key_cache", "value_cache": "value_cache"}
_CACHE: Final[Bindings] = {"key": "k", "value": "v", **_POOL, "slot_mapping": "slots", "block_stride": "page_stride"}
_LENGTHS: Final[Bindings] = {"seq_lens": "seq_lens", "query_start_len": "cu_seqlens"}
_READ: Final[Bindings] = {
    "query": "q",
    **_POOL,
    "block_tables": "block_table",
    **_LENGTHS,
    "num_seqs": "seqs",
    "stride_k_cache_0": "page_stride",
    "stride_v_cache_0": "page_stride",
    "scale": "scale",
}
SEGMENTS: Final = ("segm_output", "segm_max", "segm_expsum")
_ATTENTION: Final[Bindings] = {"output": "o", **_READ}
_ATTENTION_PARTS: Final[Bindings] = {**_READ, **{name: f"out {name}" for name in SEGMENTS}}
_REDUCE: Final[Bindings] = {"output": "o", **{name: f"in {name}" for name in SEGMENTS}, **_LENGTHS}
_ACTIVATION: Final[Bindings] = {"out": "y", "input": "gate_up", "d": "ffn"}


def _row(config: TransformerConfig) -> Grid:
    return TOKENS, 1, 1


def _blocks(config: TransformerConfig) -> Grid:
    """Attention's blocks: 16 rows each, of queries that share a key head. tokens // queries + 1 are launched.

    As `unified_attention` chooses it where at most 16 query heads share one: more, our own kernels do not take either.
    """
    return (TOKENS + 1).over(16 // (config.heads // config.kv_heads)), config.kv_heads, None


def _segments(call: Call, config: TransformerConfig) -> dict[str, Scratch]:
    """What the parts of one token's attention leave for the reduction: sums, maxima and weights of each part."""
    parts = (config.heads, call.launch.grid[2])
    shapes = {"segm_output": (*parts, config.head_dim), "segm_max": parts, "segm_expsum": parts}
    return {name: Scratch(dtype="f32", shape=shape) for name, shape in shapes.items()}


def _source(entry: str, parts: str, bindings: Bindings, grid: Callable[[TransformerConfig], Grid] = _row) -> Source:
    return Source(entry, tuple(parts.split()), bindings, grid)


SOURCES: Final = (
    _source("rms_norm_bf16", "input_norm", _NORM),
    _source("q_norm_unfused", "q_norm", _NORM, lambda config: (TOKENS * config.heads, 1, 1)),
    _source("k_norm_unfused", "k_norm", _NORM, lambda config: (TOKENS * config.kv_heads, 1, 1)),
    _source("rope_unfused", "rotary", _ROTARY),
    _source("cache_write_unfused", "cache", _CACHE, lambda config: (TOKENS, None, 1)),
    Source(
        "attention_prefill_unfused",
        ("attention",),
        _ATTENTION,
        lambda config: (*_blocks(config)[:2], 1),
        single=False,
    ),
    Source("attention_decode_unfused", ("attention",), _ATTENTION_PARTS, _blocks, single=True, scratch=_segments),
    Source("attention_decode_unfused", ("reduce",), _REDUCE, lambda config: (TOKENS, config.heads, 1), single=True),
    _source("add_rms_norm_bf16", "add_norm after", _ADD_NORM),
    _source("silu_mul", "activation", _ACTIVATION),
)
"""Every recorded step, those of one entry in the order in which they are launched."""
