"""What is assumed of vLLM's recorded kernels besides what holds for every engine, and how each pass must show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kern.models.buffers import BF16_BYTES
from kern.recorded.assumptions import Assumption
from kern.recorded.compare import Check, as_f32, differ, exact_instances, expect, one, other_kernel, own, same, several
from kern.recorded.vllm.kv_block_layout import full_blocks, same_blocks
from kern.recorded.vllm.param_bindings import SEGMENTS

SIZES: Final = Assumption("sizes", "sizes and strides are those of the config, rows dense")

_STRIDES: Final = ("block_stride", "page_stride", "head_stride")

CHECKS: Final[Mapping[Assumption, tuple[Check, ...]]] = {
    Assumption("instances", "attention of one token and of several are different kernels"): (
        other_kernel("attention"),
    ),
    Assumption(
        "dtypes",
        "activations, weights and the rotation's table are bf16, halves are rotated, and the gate is in front of what "
        "it gates",
    ): (exact_instances,),
    SIZES: (
        expect("input_norm", input_stride_d2="hidden", num_tokens="tokens", hidden_size="hidden"),
        expect("q_norm", input_shape_d2="heads", num_tokens=lambda c, tokens: tokens * c.heads),
        expect("k_norm", input_shape_d2="kv_heads", num_tokens=lambda c, tokens: tokens * c.kv_heads),
        expect("q_norm k_norm", input_stride_d2="head_dim", hidden_size="head_dim"),
        expect("rotary", rot_dim="head_dim", head_size="head_dim", head_stride="head_dim"),
        expect("rotary", num_heads="heads", num_kv_heads="kv_heads"),
        expect("attention", query_stride_1="head_dim", output_stride_1="head_dim"),
        expect("reduce", output_stride_1="head_dim"),
        expect("activation", d="ffn"),
        expect("add_norm after", input_stride="hidden", num_tokens="tokens", hidden_size="hidden"),
        several(  # strides from one token to the next: with a single token they may be anything
            expect("q_norm k_norm", input_stride_d3="qkv_size"),
            expect("rotary", query_stride="q_size", key_stride="kv_size"),
            expect("cache", key_stride="kv_size", value_stride="qkv_size"),
            expect("attention", query_stride_0="q_size", output_stride_0="q_size"),
        ),
    ),
    Assumption("constants", "attention is scaled by head_dim^-0.5 and nothing else, over one sequence"): (
        expect("attention", scale=lambda c, tokens: as_f32(c.head_dim**-0.5), out_scale=1.0, softcap=0),
        expect("attention", qq_bias_stride_0=0, num_seqs=1),
        expect("rotary", rope_dim_offset=0, inverse=0),
        expect("reduce", out_scale_inv=1.0),
    ),
    Assumption("epsilon", "every norm adds the config's epsilon"): (
        expect("input_norm q_norm k_norm add_norm after", epsilon=lambda c, tokens: as_f32(c.norm_eps)),
    ),
    Assumption("views", "queries, keys and values are neighbours in the rows of one product"): (
        same("k_norm.input", "q_norm.input", lambda c: c.q_size * BF16_BYTES),
        same("cache.value", "q_norm.input", lambda c: (c.q_size + c.kv_size) * BF16_BYTES),
    ),
    Assumption("apart", "normed queries and keys have their own rows, which are rotated, cached and attended"): (
        differ("q_norm.out", "q_norm.input"),
        differ("k_norm.out", "k_norm.input"),
        same("rotary.query", "q_norm.out"),
        same("rotary.key", "k_norm.out"),
        same("cache.key", "rotary.key"),
        same("attention.query", "rotary.query"),
    ),
    Assumption("residual", "one residual stream is added to in place from the first layer to the last"): (
        same("add_norm.residual", "input_norm.input"),
        same("after.residual", "input_norm.input"),
    ),
    Assumption("in-place", "a product is normed in its own memory, never in the residual's"): (
        differ("input_norm.out", "input_norm.input"),
        differ("add_norm.input", "add_norm.residual"),
        differ("after.input", "after.residual"),
        differ("activation.out", "activation.input"),
    ),
    Assumption("weights", "every norm of every layer has its own weight, the same in all passes"): (
        own("input_norm.weight", "q_norm.weight", "k_norm.weight", "add_norm.weight", "after.weight"),
    ),
    Assumption("rope-table", "one table of cosines and sines serves all layers and passes, from its start"): (
        one("rotary.cos_sin_cache", always=True),
    ),
    Assumption("inputs", "positions, slots, page table and lengths are the same for all layers of a pass"): (
        one("rotary.positions", "cache.slot_mapping"),
        one("attention.block_tables", "attention.seq_lens", "attention.query_start_len"),
        same("reduce.seq_lens", "attention.seq_lens"),
        same("reduce.query_start_len", "attention.query_start_len"),
    ),
    Assumption("pool", "each layer has its own blocks, the values equally far behind the keys in all"): (
        own("cache.key_cache"),
        same_blocks,
    ),
    Assumption("page", "keys and values of 16 tokens fill a block, without gaps"): (full_blocks,),
    Assumption("shared-pool", "attention reads where the cache write wrote: pool, strides and scales agree"): (
        *(same(f"attention.{name}", f"cache.{name}") for name in ("key_cache", "value_cache", "k_scale", "v_scale")),
        *(
            same(f"attention.stride_{which}_cache_{dimension}", f"cache.{name}")
            for dimension, name in enumerate(_STRIDES)
            for which in "kv"
        ),
    ),
    Assumption("parts", "the reduction reads the parts that attention wrote, the same memory in all layers"): (
        same("reduce.output", "attention.output"),
        *(same(f"reduce.{name}", f"attention.{name}") for name in SEGMENTS),
        several(*(one(f"attention.{name}") for name in SEGMENTS), single=True),
        several(*(differ(f"attention.{name}", "attention.output") for name in SEGMENTS), single=True),
    ),
}
"""Each assumption with what is compared for it in every pass, in the order in which they are checked."""
