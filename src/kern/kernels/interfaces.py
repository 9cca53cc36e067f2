"""The transformer kernels' interfaces: the parameters of each entry by name, the same whatever implements it.

The residual stream is f32; everything else is stored in bf16, summed in f32; logits are f32. Sizes and strides are in
elements. The first dimension of every entry is `tokens` or `seqs`. A page of the pool holds PAGE slots
(`kern.contracts.text`); page p starts at element p · page_stride, and one layer of it is
[key or value: 2][kv_heads][PAGE][head_dim]; the state's offset picks the layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from kern.manifest.params import Param

Interface: TypeAlias = Mapping[str, Param]
"""The parameters of an entry by name, in the order in which dispatches and steps take them."""

MAX_HEAD_DIM: Final = 256
"""The largest head_dim that attention takes."""


def interface(text: str) -> Interface:
    """Parameters from their short form: `y: out bf16, pool: in ptr, m n k: i32`."""
    groups = [group.partition(": ") for group in text.split(", ")]
    return {name: _param(kind) for names, _, kind in groups for name in names.split()}


def _param(kind: str) -> Param:
    direction, _, pointee = kind.rpartition(" ")
    return Param.parse(f"{direction} buffer<{pointee}>" if direction and pointee != "ptr" else kind)


_PRODUCT = "x: in bf16, w: in bf16, m n k: i32"
_RMS_PRODUCT = "weighted: in bf16, squares: in f32, w: in bf16, m n k: i32, eps: f32"
_PRODUCT_ADDED = (
    "weighted: out bf16, squares: out f32, residual: inout f32, x: in bf16, w: in bf16, weight: in bf16, m n k: i32"
)
_HEADS = "q_heads kv_heads head_dim row_stride: i32, page_stride: i64"
_ATTENTION = f"seqs pages {_HEADS}, scale: f32"
_APPEND = "positions: in i64, cos_sin: in f32, pool: inout ptr, slots: in i64"
_ATTEND = f"{_APPEND}, block_table: in i32, seq_lens: in i32, seqs pages {_HEADS}"
_ATTEND_ROWS = f"{_APPEND}, block_table: in i32, seq_lens: in i32, tokens pages {_HEADS}"
_NORMS = "q_norm: in bf16, k_norm: in bf16"

# One launch for one operation.
_SINGLE: Final = {
    # x [tokens, hidden] = table [vocabulary, hidden] at ids [tokens]. An id below 0, argmax's for no token, reads
    # row 0, here and in every lookup: a step that is launched before the caller knows of it stays within the table
    "embedding": "x: out f32, ids: in i64, table: in bf16, hidden: i32",
    # y [tokens, hidden] = x · rsqrt(mean(x²) + eps) · weight [hidden]
    "rms_norm": "y: out bf16, x: in f32, weight: in bf16, hidden: i32, eps: f32",
    # x += delta [tokens, hidden], then y as above
    "add_rms_norm": "y: out bf16, x: inout f32, delta: in bf16, weight: in bf16, hidden: i32, eps: f32",
    # heads of head_dim contiguous elements in rows of row_stride, weight [head_dim]: each normed in place
    "q_head_norm": "heads: inout bf16, weight: in bf16, head_dim row_stride: i32, eps: f32",
    "k_head_norm": "heads: inout bf16, weight: in bf16, head_dim row_stride: i32, eps: f32",
    # cos_sin [max_positions, head_dim] (cosines of head_dim / 2 angles, then sines) at positions [tokens]: halves of
    # the first q_heads + kv_heads heads rotated in place
    "rope": "qkv: inout bf16, positions: in i64, cos_sin: in f32, head_dim row_stride: i32",
    # k and v are views of qkv, slots [tokens]; slot -1: nothing is written
    "cache_write": (
        "k: in bf16, v: in bf16, pool: inout ptr, slots: in i64, kv_heads head_dim row_stride: i32, page_stride: i64"
    ),
    # o [tokens, q_heads · head_dim], q a view of qkv, block_table [seqs, pages], seq_lens [seqs], cu_seqlens
    # [seqs + 1]: causal; the last token of sequence s sees seq_lens[s] keys; the table is never read past `pages`
    "attention_prefill": (
        "o: out bf16, q: in bf16, pool: in ptr, block_table: in i32, seq_lens: in i32, cu_seqlens: in i32, "
        f"{_ATTENTION}"
    ),
    # the same with one token per sequence
    "attention_decode": (f"o: out bf16, q: in bf16, pool: in ptr, block_table: in i32, seq_lens: in i32, {_ATTENTION}"),
    # y [tokens, ffn] = silu(gate) · up of gate_up [tokens, 2 · ffn]
    "silu_mul": "y: out bf16, gate_up: in bf16, ffn: i32",
    # y [m, n] = x [m, k] · w [n, k]ᵀ: the interface of extern:cublaslt_bf16_tn and …_tn_f32
    "matmul": f"y: out bf16, {_PRODUCT}",
    "matmul_f32": f"y: out f32, {_PRODUCT}",
    # next [seqs] of logits [seqs, vocabulary]: the index of the maximum, the lowest of equal ones; -infinity is a
    # banned id. -1, no token, for a row with a NaN or +infinity, or with nothing but -infinity
    "argmax": "next: out i64, logits: in f32, vocabulary: i32",
    # nll [tokens] of targets under logits [tokens, vocabulary]: NaN for a row that argmax gives -1 for, and for a
    # target outside the row; infinite for a banned target
    "token_nll": "nll: out f32, logits: in f32, targets: in i64, vocabulary: i32",
    # each [seqs], token_ring [seqs, ring]: the inputs become the step to run, the tokens enter the ring
    "begin": (
        "step_token step_position step_slot: out i64, step_length: out i32, token_ring: inout i64, "
        "token_ids positions slot_mapping: in i64, seq_lens: in i32, seqs ring: i32"
    ),
    # next_token [seqs], block_table [seqs, pages]: on to the next token; past the last page the slot is -1
    "advance": (
        "step_token step_position step_slot: inout i64, step_length: inout i32, token_ring: inout i64, "
        "next_token: in i64, block_table: in i32, seqs pages ring: i32"
    ),
}

# One launch for several of these operations, for a device where a launch costs.
_FUSED: Final = {
    # head norms of queries and keys, rope and cache_write; q_norm and k_norm [head_dim]
    "norm_rope_cache": f"qkv: inout bf16, {_NORMS}, {_APPEND}, {_HEADS}, eps: f32",
    # the same without norms
    "rope_cache": f"qkv: inout bf16, {_APPEND}, {_HEADS}",
    # A norm before a product is divided out after it: norm(x) = weighted · rsqrt(mean(x²) + eps), where weighted
    # [m, hidden] is the residual stream x times the norm's weight, and squares [m, blocks of a product] what each block
    # adds to the sum of x². Here x [tokens, hidden] = table at ids
    "embedding_weighted": (
        "weighted: out bf16, squares: out f32, x: out f32, ids: in i64, table: in bf16, weight: in bf16, hidden: i32"
    ),
    # y [m, n] = norm(x) · wᵀ
    "rms_matmul": f"y: out bf16, {_RMS_PRODUCT}",
    "rms_matmul_f32": f"y: out f32, {_RMS_PRODUCT}",
    # y [m, n] = silu(gate) · up of norm(x) · wᵀ, w [2n, k]
    "rms_gate_up": f"y: out bf16, {_RMS_PRODUCT}",
    # residual [m, n] += x [m, k] · w [n, k]ᵀ, then weighted and squares of it, weight [n]; k is the width of all query
    # heads, and ffn
    "output_matmul_add": _PRODUCT_ADDED,
    "down_matmul_add": _PRODUCT_ADDED,
    # norm_rope_cache, but qkv stays as it is, then attention_decode
    "norm_append_attention": f"o: out bf16, qkv: in bf16, {_NORMS}, {_ATTEND}, eps: f32, scale: f32",
    # the same without norms
    "append_attention": f"o: out bf16, qkv: in bf16, {_ATTEND}, scale: f32",
}

_NORM_BF16 = "y: out bf16, x: in bf16, weight: in bf16, rows width: i32, eps: f32"
_ATTENTION_BF16 = (
    "o: out bf16, q: in bf16, key_cache: in ptr, value_cache: in ptr, block_table: in i32, seq_lens: in i32, "
    "cu_seqlens: in i32, seqs: i32, page_stride: i64, scale: f32"
)

# A layer whose residual stream is bf16 and whose queries and keys are copied out of qkv. The layout inside a page is up
# to the implementations, and the same for all three that use it.
_UNFUSED: Final = {
    # x [tokens, hidden] = table [vocabulary, hidden] at ids
    "embedding_bf16": "x: out bf16, ids: in i64, table: in bf16, hidden: i32",
    # y [rows, width] = x · rsqrt(mean(x²) + eps) · weight [width]
    "rms_norm_bf16": _NORM_BF16,
    # x += delta [tokens, hidden], then delta = norm(x)
    "add_rms_norm_bf16": "delta: inout bf16, x: inout bf16, weight: in bf16, tokens hidden: i32, eps: f32",
    # rms_norm_bf16 of rows = tokens · heads, width = head_dim; x is a view of qkv, y is dense
    "q_norm_unfused": _NORM_BF16,
    "k_norm_unfused": _NORM_BF16,
    # q [tokens, q_heads, head_dim], k [tokens, kv_heads, head_dim], cos_sin [max_positions, head_dim]: halves rotated
    # in place
    "rope_unfused": "q: inout bf16, k: inout bf16, positions: in i64, cos_sin: in bf16",
    # k [tokens, kv_heads, head_dim], v a view of qkv, the layer's keys and values in the first page; slot -1: nothing
    # is written
    "cache_write_unfused": (
        "k: in bf16, v: in bf16, key_cache: inout ptr, value_cache: inout ptr, slots: in i64, page_stride: i64"
    ),
    # o and q [tokens, q_heads, head_dim], the layer's keys and values in the first page, block_table [seqs, pages],
    # seq_lens [seqs], cu_seqlens [seqs + 1]: causal
    "attention_prefill_unfused": _ATTENTION_BF16,
    # the same with one token per sequence
    "attention_decode_unfused": _ATTENTION_BF16,
    # matmul and matmul_f32, one for each product of a step
    **{f"{name}_matmul": f"y: out bf16, {_PRODUCT}" for name in ("qkv", "output", "gate_up", "down")},
    "logits_matmul": f"y: out f32, {_PRODUCT}",
}

# What a model that drafts tokens for another needs.
_SPECULATION: Final = {
    # y [tokens, hidden] = x rounded
    "to_bf16": "y: out bf16, x: in f32, hidden: i32",
    # matmul_f32, added to y: the interface of extern:cublaslt_bf16_tn_f32_acc
    "matmul_acc_f32": f"y: inout f32, {_PRODUCT}",
    # y [seqs, width] = table [vocabulary, width] at ids
    "gather_bf16": "y: out bf16, ids: in i64, table: in bf16, width: i32",
    # next [tokens] of logits [tokens, vocabulary]: argmax of every row of a program, its -1 too
    "argmax_rows": "next: out i64, logits: in f32, vocabulary: i32",
    # attention_prefill, but each query sees all seq_lens[s] keys of its sequence
    "attention_full": _SINGLE["attention_prefill"],
    # rope of rows that are the key heads and the value heads
    "k_rope": _SINGLE["rope"],
    # next [1], logits [1, vocabulary], before [1], w1 and w2 [vocabulary, rank]: logits += w1 at before · w2ᵀ; next is
    # their argmax
    "markov_argmax": (
        "next: out i64, logits: inout f32, before: in i64, w1: in bf16, w2: in bf16, vocabulary rank: i32"
    ),
    # With `block` drafts per round, the rows of a sequence are the anchor and its drafts. [seqs, block + 1]:
    # round_tokens, round_positions, round_slots, feature_positions, feature_slots; [seqs]: round_length, block_length,
    # round_count, step_position; [seqs + 1]: round_starts, block_starts; block_ids [seqs, block]; accepted and
    # token_ring [seqs, ring]; block_table [seqs, pages]; mask is an id. The inputs become the anchors, and no row
    # verified before has features
    "begin_spec": (
        "round_tokens round_positions round_slots: out i64, round_length round_starts: out i32, block_ids: out i64, "
        "block_length block_starts: out i32, feature_positions feature_slots: out i64, accepted: out i32, "
        "round_count step_position: out i64, token_ring: inout i64, token_ids positions: in i64, block_table: in i32, "
        "seqs pages ring block mask: i32"
    ),
    # predicted [seqs, block + 1]. The longest run of drafts equal to what is predicted row by row is accepted, up to a
    # prediction of -1, then the prediction after it, the next anchor; rows for the round that begins there; slot -1 for
    # the features of rows that are not accepted
    "accept": (
        "round_tokens round_positions round_slots: inout i64, round_length: out i32, block_ids: out i64, "
        "block_length: out i32, feature_positions feature_slots: out i64, accepted: inout i32, "
        "round_count step_position token_ring: inout i64, predicted: in i64, block_table: in i32, "
        "seqs pages ring block: i32"
    ),
}

# The rows of one round of speculation, in fused launches.
_ROUND: Final = {
    # the products of a step for the rows of a round; the last for an MLP of the draft's own width
    **{f"{name}_rows": text for name, text in _FUSED.items() if "matmul" in name or name == "rms_gate_up"},
    "down_matmul_add_draft": _PRODUCT_ADDED,
    # matmul for k = hidden; matmul_f32 and matmul_acc_f32 of to_bf16
    "hidden_matmul_rows": f"y: out bf16, {_PRODUCT}",
    "residual_matmul_f32": "y: out f32, x: in f32, w: in bf16, m n k: i32",
    "residual_matmul_acc_f32": "y: inout f32, x: in f32, w: in bf16, m n k: i32",
    # norm_rope_cache, but qkv stays as it is, then attention_prefill, of the last `tokens` tokens of one sequence;
    # block_table [1, pages], seq_lens [1]. Row r is at seq_lens[0] - tokens + r of the sequence, in the slot there, or
    # is not kept where its slot is -1
    "norm_append_attention_rows": f"o: out bf16, qkv: in bf16, {_NORMS}, {_ATTEND_ROWS}, eps: f32, scale: f32",
    # the same without norms
    "append_attention_rows": f"o: out bf16, qkv: in bf16, {_ATTEND_ROWS}, scale: f32",
    # the same two, but each row sees all seq_lens[0] keys
    "norm_append_attention_rows_full": f"o: out bf16, qkv: in bf16, {_NORMS}, {_ATTEND_ROWS}, eps: f32, scale: f32",
    "append_attention_rows_full": f"o: out bf16, qkv: in bf16, {_ATTEND_ROWS}, scale: f32",
}

INTERFACES: Final[Mapping[str, Interface]] = {
    name: interface(text) for name, text in (_SINGLE | _FUSED | _UNFUSED | _SPECULATION | _ROUND).items()
}
"""The interface of each entry."""
