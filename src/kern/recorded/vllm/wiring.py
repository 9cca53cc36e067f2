"""The claims about one forward pass: what its launches must show for the layers to be wired as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from kern.checkpoints.config import TransformerConfig
from kern.models.buffers import BF16_BYTES
from kern.recorded.compare import as_f32, differ, expect, same
from kern.recorded.parse_pass import Call, Forward, Layer
from kern.recorded.vllm.assumptions import (
    APART,
    CONSTANTS,
    DTYPES,
    EPSILON,
    GRIDS,
    IN_PLACE,
    INPUTS,
    PARTS,
    RESIDUAL,
    ROPE_TABLE,
    SHARED_POOL,
    SIZES,
    VIEWS,
    Refuted,
)

_Check: TypeAlias = Callable[[Forward, TransformerConfig], None]


def check_forward(forward: Forward, config: TransformerConfig) -> None:
    """Raises Refuted at the first claim about a single pass that does not hold."""
    for check in _CHECKS:
        check(forward, config)


def queries_a_block(config: TransformerConfig) -> int:
    """Tokens whose queries a block of attention takes: 16 rows, shared by the query heads of a key head.

    As `unified_attention` chooses it where at most 16 query heads share one: more, our own kernels do not take either.
    """
    return 16 // (config.heads // config.kv_heads)


def _dtypes(forward: Forward, config: TransformerConfig) -> None:
    for call in forward.calls():
        if not call.launch.symbol.startswith(call.signature.exact):
            raise Refuted(DTYPES, f"{call.where}: the kernel is {call.launch.symbol}", f"{call.signature.exact}…")


def _grids(forward: Forward, config: TransformerConfig) -> None:
    tokens = forward.tokens
    _grid(forward.input_norm, tokens)
    for layer in forward.layers:
        _grid(layer.q_norm, tokens * config.heads)
        _grid(layer.k_norm, tokens * config.kv_heads)
        for call in (layer.rotary, layer.add_norm, layer.activation, layer.after):
            _grid(call, tokens)
        _grid(layer.cache, tokens, layer.cache.launch.grid[1])
        blocks, parts = tokens // queries_a_block(config) + 1, layer.attention.launch.grid[2]
        _grid(layer.attention, blocks, config.kv_heads, parts if layer.reduce else 1)
        if layer.reduce:
            _grid(layer.reduce, tokens, config.heads)


def _grid(call: Call, x: int, y: int = 1, z: int = 1) -> None:
    if call.launch.grid != (x, y, z):
        raise Refuted(GRIDS, f"{call.where}: the grid is {list(call.launch.grid)}", [x, y, z])


def _sizes(forward: Forward, config: TransformerConfig) -> None:
    tokens, hidden, dim = forward.tokens, config.hidden, config.head_dim
    expect(SIZES, forward.input_norm, input_stride_d2=hidden, num_tokens=tokens, hidden_size=hidden)
    for layer in forward.layers:
        for call, heads in ((layer.q_norm, config.heads), (layer.k_norm, config.kv_heads)):
            expect(SIZES, call, input_stride_d2=dim, input_shape_d2=heads, num_tokens=tokens * heads, hidden_size=dim)
        expect(SIZES, layer.rotary, rot_dim=dim, head_size=dim, head_stride=dim)
        expect(SIZES, layer.rotary, num_heads=config.heads, num_kv_heads=config.kv_heads)
        expect(SIZES, layer.attention, query_stride_1=dim, output_stride_1=dim)
        if layer.reduce:
            expect(SIZES, layer.reduce, output_stride_1=dim)
        expect(SIZES, layer.activation, d=config.ffn)
        for call in (layer.add_norm, layer.after):
            expect(SIZES, call, input_stride=hidden, num_tokens=tokens, hidden_size=hidden)
        if tokens > 1:
            _rows(layer, config)


def _rows(layer: Layer, config: TransformerConfig) -> None:
    """Strides from one token to the next: with a single token they may be anything."""
    q, kv, qkv = config.q_size, config.kv_size, config.qkv_size
    expect(SIZES, layer.q_norm, input_stride_d3=qkv)
    expect(SIZES, layer.k_norm, input_stride_d3=qkv)
    expect(SIZES, layer.rotary, query_stride=q, key_stride=kv)
    expect(SIZES, layer.cache, key_stride=kv, value_stride=qkv)
    expect(SIZES, layer.attention, query_stride_0=q, output_stride_0=q)


def _constants(forward: Forward, config: TransformerConfig) -> None:
    scale = as_f32(config.head_dim**-0.5)
    for layer in forward.layers:
        expect(CONSTANTS, layer.attention, scale=scale, out_scale=1.0, softcap=0, qq_bias_stride_0=0, num_seqs=1)
        expect(CONSTANTS, layer.rotary, rope_dim_offset=0, inverse=0)
        if layer.reduce:
            expect(CONSTANTS, layer.reduce, out_scale_inv=1.0)


def _epsilon(forward: Forward, config: TransformerConfig) -> None:
    for call in forward.calls():
        if call.signature.role in ("norm", "add_norm"):
            expect(EPSILON, call, epsilon=as_f32(config.norm_eps))


def _views(forward: Forward, config: TransformerConfig) -> None:
    for layer in forward.layers:
        same(VIEWS, layer.k_norm, "input", layer.q_norm, "input", config.q_size * BF16_BYTES)
        same(VIEWS, layer.cache, "value", layer.q_norm, "input", (config.q_size + config.kv_size) * BF16_BYTES)


def _apart(forward: Forward, config: TransformerConfig) -> None:
    for layer in forward.layers:
        differ(APART, layer.q_norm, "out", layer.q_norm, "input")
        differ(APART, layer.k_norm, "out", layer.k_norm, "input")
        same(APART, layer.rotary, "query", layer.q_norm, "out")
        same(APART, layer.rotary, "key", layer.k_norm, "out")
        same(APART, layer.cache, "key", layer.rotary, "key")
        same(APART, layer.attention, "query", layer.rotary, "query")


def _residual(forward: Forward, config: TransformerConfig) -> None:
    for layer in forward.layers:
        for call in (layer.add_norm, layer.after):
            same(RESIDUAL, call, "residual", forward.input_norm, "input")


def _in_place(forward: Forward, config: TransformerConfig) -> None:
    differ(IN_PLACE, forward.input_norm, "out", forward.input_norm, "input")
    for layer in forward.layers:
        for call in (layer.add_norm, layer.after):
            differ(IN_PLACE, call, "input", call, "residual")
        differ(IN_PLACE, layer.activation, "out", layer.activation, "input")


def _inputs(forward: Forward, config: TransformerConfig) -> None:
    first = forward.layers[0]
    for layer in forward.layers:
        same(INPUTS, layer.rotary, "positions", first.rotary, "positions")
        same(INPUTS, layer.cache, "slot_mapping", first.cache, "slot_mapping")
        for name in ("block_tables", "seq_lens", "query_start_len"):
            same(INPUTS, layer.attention, name, first.attention, name)
        if layer.reduce:
            for name in ("seq_lens", "query_start_len"):
                same(INPUTS, layer.reduce, name, first.attention, name)


def _rope_table(forward: Forward, config: TransformerConfig) -> None:
    for layer in forward.layers:
        same(ROPE_TABLE, layer.rotary, "cos_sin_cache", forward.layers[0].rotary, "cos_sin_cache")


def _shared_pool(forward: Forward, config: TransformerConfig) -> None:
    strides = {"block_stride": 0, "page_stride": 1, "head_stride": 2}
    for layer in forward.layers:
        for name in ("key_cache", "value_cache", "k_scale", "v_scale"):
            same(SHARED_POOL, layer.attention, name, layer.cache, name)
        for name, dimension in strides.items():
            for which in "kv":
                same(SHARED_POOL, layer.attention, f"stride_{which}_cache_{dimension}", layer.cache, name)


def _parts(forward: Forward, config: TransformerConfig) -> None:
    for layer in forward.layers:
        if layer.reduce is None:
            continue
        same(PARTS, layer.reduce, "output", layer.attention, "output")
        for name in ("segm_output", "segm_max", "segm_expsum"):
            same(PARTS, layer.reduce, name, layer.attention, name)
            same(PARTS, layer.attention, name, forward.layers[0].attention, name)
            differ(PARTS, layer.attention, name, layer.attention, "output")


_CHECKS: Final[tuple[_Check, ...]] = (
    _dtypes,
    _grids,
    _sizes,
    _constants,
    _epsilon,
    _views,
    _apart,
    _residual,
    _in_place,
    _inputs,
    _rope_table,
    _shared_pool,
    _parts,
)
