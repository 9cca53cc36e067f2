"""The transformer kernels' interfaces: what each entry takes, the same whatever implements it.

The residual stream is f32; everything else is stored in bf16, summed in f32; logits are f32. Sizes are in elements.
H is the hidden size, D a head's, F the feed-forward's, V the vocabulary's, R the token ring's. Every entry's first
dimension is `tokens` or `seqs`. A page of the pool holds PAGE slots (`kern.contracts.text`); page p starts at element
p · page_stride, and one layer of it is [key or value: 2][kv_heads][PAGE][D]; the state's offset picks the layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kern.manifest.params import Param

MAX_HEAD_DIM: Final = 256
"""The largest D that attention takes."""

_ATTENTION_HEADS = "i32 i32 i32 i32 i32 i32 i64 f32"  # seqs pages q_heads kv_heads D row_stride page_stride scale
_PRODUCT = "in:bf16 in:bf16 i32 i32 i32"

_TEXT: Final[dict[str, str]] = {
    # x [tokens, H] = table [V, H] at ids; H. An id below 0, argmax's where there is no token, reads row 0, here and
    # wherever ids are looked up: a step launched before the caller knows stays within the table
    "embedding": "out:f32 in:i64 in:bf16 i32",
    # y [tokens, H] = x · rsqrt(mean(x²) + eps) · weight [H]; H, eps
    "rms_norm": "out:bf16 in:f32 in:bf16 i32 f32",
    # y, x, delta [tokens, H], weight, H, eps: x += delta, then y as above
    "add_rms_norm": "out:bf16 inout:f32 in:bf16 in:bf16 i32 f32",
    # heads of D contiguous elements in rows of row_stride, weight [D], D, row_stride, eps: each normed in place
    "q_head_norm": "inout:bf16 in:bf16 i32 i32 f32",
    "k_head_norm": "inout:bf16 in:bf16 i32 i32 f32",
    # qkv rows, positions, cos_sin [max_positions, D] (cosines of D/2 angles, then sines), D, row_stride:
    # halves of the first q_heads + kv_heads heads rotated in place
    "rope": "inout:bf16 in:i64 in:f32 i32 i32",
    # k and v (views), pool, slots, kv_heads, D, row_stride, page_stride; slot -1: nothing is written
    "cache_write": "in:bf16 in:bf16 inout:ptr in:i64 i32 i32 i32 i64",
    # o [tokens, q_heads · D], q (view), pool, block_table [seqs, pages], seq_lens [seqs], cu_seqlens_q [seqs + 1], …:
    # causal; the last token of sequence s sees seq_lens[s] keys; the table is never read past `pages`
    "attention_prefill": "out:bf16 in:bf16 in:ptr in:i32 in:i32 in:i32 " + _ATTENTION_HEADS,
    # the same with one token a sequence
    "attention_decode": "out:bf16 in:bf16 in:ptr in:i32 in:i32 " + _ATTENTION_HEADS,
    # y [tokens, F] = silu(gate) · up of gate_up [tokens, 2F]; F
    "silu_mul": "out:bf16 in:bf16 i32",
    # C [m, n] = A [m, k] · W [n, k]ᵀ; m, n, k: the interface of extern:cublaslt_bf16_tn and …_tn_f32
    "matmul": "out:bf16 " + _PRODUCT,
    "matmul_f32": "out:f32 " + _PRODUCT,
    # next [seqs] of logits [seqs, V], V: the greatest, ties to the lowest index; -infinity is a banned id. -1, no
    # token, for a row with a NaN or +infinity, or of nothing but -infinity
    "argmax": "out:i64 in:f32 i32",
    # nll [tokens] of targets under logits [tokens, V]; V: NaN for a row that argmax gives -1 for, and for a target
    # outside the row; infinite for a banned target
    "token_nll": "out:f32 in:f32 in:i64 i32",
    # step_token, step_position, step_slot, step_length [seqs], token_ring [seqs, R]; token_ids, positions,
    # slot_mapping, seq_lens; seqs, R: the inputs become the step to run, the tokens enter the ring
    "begin": "out:i64 out:i64 out:i64 out:i32 inout:i64 in:i64 in:i64 in:i64 in:i32 i32 i32",
    # the same five; next_token, block_table [seqs, pages]; seqs, pages, R: on to the next token; past the last
    # page the slot is -1
    "advance": "inout:i64 inout:i64 inout:i64 inout:i32 inout:i64 in:i64 in:i32 i32 i32 i32",
}


def params(text: str) -> tuple[Param, ...]:
    """Parameters from their short form: `out:bf16 in:ptr i32`."""
    return tuple(_param(word) for word in text.split())


def _param(word: str) -> Param:
    direction, _, kind = word.rpartition(":")
    if not direction:
        return Param.parse(kind)
    return Param.parse(f"{direction} {kind}" if kind == "ptr" else f"{direction} buffer<{kind}>")


INTERFACES: Final[Mapping[str, tuple[Param, ...]]] = {name: params(text) for name, text in _TEXT.items()}
"""The interface of each entry."""

_RMS_PRODUCT = "in:bf16 in:f32 in:bf16 i32 i32 i32 f32"  # weighted [m, k], squares, W [n, k]; m, n, k, eps
_ADDED_PRODUCT = "out:bf16 out:f32 inout:f32 in:bf16 in:bf16 in:bf16 i32 i32 i32"
_APPEND = "in:i64 in:f32 inout:ptr in:i64"  # positions, cos_sin, pool, slots
_ATTEND = (
    "in:i32 in:i32 i32 i32 i32 i32 i32 i64"  # table, seq_lens; pages, q_heads, kv_heads, D, row_stride, page_stride
)
_HEADS = "i32 i32 i32 i32 i64"  # q_heads, kv_heads, D, row_stride, page_stride

_FUSED_TEXT: Final[dict[str, str]] = {
    # head norms of queries and keys, rope and cache_write in one: qkv, q weight [D], k weight [D], …, eps
    "norm_rope_cache": f"inout:bf16 in:bf16 in:bf16 {_APPEND} {_HEADS} f32",
    # the same without norms
    "rope_cache": f"inout:bf16 {_APPEND} {_HEADS}",
    # A norm on the way to a product is divided out after it: norm(x) = weighted · rsqrt(mean(x²) + eps), where weighted
    # [m, H] is the residual stream x times the norm's weight, and squares [m, blocks of a product] what each block adds
    # to the sum of x². weighted, squares, x, ids, table, weight [H]; H: x = table at ids
    "embedding_weighted": "out:bf16 out:f32 out:f32 in:i64 in:bf16 in:bf16 i32",
    # C [m, n] = norm(x) · Wᵀ
    "rms_matmul": "out:bf16 " + _RMS_PRODUCT,
    "rms_matmul_f32": "out:f32 " + _RMS_PRODUCT,
    # y [m, n] = silu(gate) · up of norm(x) · Wᵀ, W [2n, k]
    "rms_gate_up": "out:bf16 " + _RMS_PRODUCT,
    # weighted, squares, x [m, n], A [m, k], W [n, k], weight [n]; m, n, k: x += A · Wᵀ; of all query heads' width, of F
    "output_matmul_add": _ADDED_PRODUCT,
    "down_matmul_add": _ADDED_PRODUCT,
    # norm_rope_cache, but that qkv stays as it is, then attention_decode: o, qkv, q weight, k weight, …, eps, scale
    "norm_append_attention": f"out:bf16 in:bf16 in:bf16 in:bf16 {_APPEND} {_ATTEND} f32 f32",
    # the same without norms
    "append_attention": f"out:bf16 in:bf16 {_APPEND} {_ATTEND} f32",
}

FUSED_INTERFACES: Final[Mapping[str, tuple[Param, ...]]] = {name: params(text) for name, text in _FUSED_TEXT.items()}
"""The interfaces of entries that do the work of several of INTERFACES, for a device where a launch costs."""

_ATTENTION_BF16 = "out:bf16 in:bf16 in:ptr in:ptr in:i32 in:i32 in:i32 i32 i64 f32"

_RECORDED_TEXT: Final[dict[str, str]] = {
    # x [tokens, H] = table [V, H] at ids; H
    "embedding_bf16": "out:bf16 in:i64 in:bf16 i32",
    # y [tokens, H] = x · rsqrt(mean(x²) + eps) · weight [H]; tokens, H, eps
    "rms_norm_bf16": "out:bf16 in:bf16 in:bf16 i32 i32 f32",
    # delta, x [tokens, H], weight; tokens, H, eps: x += delta, then delta = norm(x)
    "add_rms_norm_bf16": "inout:bf16 inout:bf16 in:bf16 i32 i32 f32",
    # y [tokens · heads, D] dense, heads of D elements in the rows of qkv (view), weight [D]; tokens · heads, D, eps
    "q_norm_unfused": "out:bf16 in:bf16 in:bf16 i32 i32 f32",
    "k_norm_unfused": "out:bf16 in:bf16 in:bf16 i32 i32 f32",
    # q [tokens, q_heads, D], k [tokens, kv_heads, D], positions, cos_sin [max_positions, D]: halves rotated in place
    "rope_unfused": "inout:bf16 inout:bf16 in:i64 in:bf16",
    # k [tokens, kv_heads, D], v (view in rows of qkv), the layer's keys and values in the first page, slots;
    # page_stride; slot -1: nothing is written
    "cache_write_unfused": "in:bf16 in:bf16 inout:ptr inout:ptr in:i64 i64",
    # o and q [tokens, q_heads, D], the layer's keys and values in the first page, block_table [seqs, pages],
    # seq_lens [seqs], cu_seqlens_q [seqs + 1]; seqs, page_stride, scale: causal
    "attention_prefill_unfused": _ATTENTION_BF16,
    # the same with one token a sequence
    "attention_decode_unfused": _ATTENTION_BF16,
    # matmul and matmul_f32, one for each product of a step
    "qkv_matmul": "out:bf16 " + _PRODUCT,
    "output_matmul": "out:bf16 " + _PRODUCT,
    "gate_up_matmul": "out:bf16 " + _PRODUCT,
    "down_matmul": "out:bf16 " + _PRODUCT,
    "logits_matmul": "out:f32 " + _PRODUCT,
}

RECORDED_INTERFACES: Final[Mapping[str, tuple[Param, ...]]] = {
    name: params(text) for name, text in _RECORDED_TEXT.items()
}
"""The interfaces of a layer whose residual stream is bf16 and whose queries and keys leave qkv for rows of their own.

The layout inside a page is the implementations' affair, the same for all three that touch it.
"""

_SPECULATION_TEXT: Final[dict[str, str]] = {
    # y [tokens, H] = x rounded; H
    "to_bf16": "out:bf16 in:f32 i32",
    # matmul_f32, added to C: the interface of extern:cublaslt_bf16_tn_f32_acc
    "matmul_acc_f32": "inout:f32 " + _PRODUCT,
    # y [seqs, W] = table [V, W] at ids; W
    "gather_bf16": "out:bf16 in:i64 in:bf16 i32",
    # next [tokens] of logits [tokens, V], V: argmax of every row of a program, its -1 too
    "argmax_rows": "out:i64 in:f32 i32",
    # With B drafts a round, rows of a sequence are the anchor and its drafts. round_tokens, round_positions,
    # round_slots [seqs, B + 1], round_length [seqs], round_starts [seqs + 1], block_ids [seqs, B], block_length [seqs],
    # block_starts [seqs + 1], feature_positions, feature_slots [seqs, B + 1], accepted [seqs, R], round_count,
    # step_position [seqs], token_ring [seqs, R]; token_ids, positions, block_table [seqs, pages]; seqs, pages, R, B,
    # the mask's id: the inputs become the anchors, and no row verified before has features
    "begin_spec": (
        "out:i64 out:i64 out:i64 out:i32 out:i32 out:i64 out:i32 out:i32 out:i64 out:i64 out:i32 out:i64 out:i64 "
        "inout:i64 in:i64 in:i64 in:i32 i32 i32 i32 i32 i32"
    ),
    # the same without round_starts and block_starts; predicted [seqs, B + 1], block_table; seqs, pages, R, B: the
    # longest run of drafts equal to what row by row is predicted stands, up to a prediction of -1, then the prediction
    # after it, the next anchor;
    # rows for the round that begins there; slot -1 for the features of rows that do not stand
    "accept": (
        "inout:i64 inout:i64 inout:i64 out:i32 out:i64 out:i32 out:i64 out:i64 inout:i32 inout:i64 inout:i64 "
        "inout:i64 in:i64 in:i32 i32 i32 i32 i32"
    ),
}

SPECULATION_INTERFACES: Final[Mapping[str, tuple[Param, ...]]] = {
    name: params(text) for name, text in _SPECULATION_TEXT.items()
}
"""The interfaces of what a model that drafts tokens for another needs beside INTERFACES."""

HOST_SPECULATION_INTERFACES: Final[Mapping[str, tuple[Param, ...]]] = {
    **SPECULATION_INTERFACES,
    # attention_prefill, but that each query sees all seq_lens[s] keys of its sequence
    "attention_full": INTERFACES["attention_prefill"],
    # rope of rows that are the key heads and the value heads
    "k_rope": INTERFACES["rope"],
}
"""The same for the host, whose norms, rotation and cache write stand apart."""

CUDA_SPECULATION_INTERFACES: Final[Mapping[str, tuple[Param, ...]]] = {
    **SPECULATION_INTERFACES,
    # next [1], logits [1, V], before [1], W1 and W2 [V, r]; V, r: logits += W1 at before · W2ᵀ; next is their argmax
    "markov_argmax": params("out:i64 inout:f32 in:i64 in:bf16 in:bf16 i32 i32"),
}
"""The same for CUDA."""

_ATTEND_ROWS = "in:i32 in:i32 i32 i32 i32 i32 i32 i32 i64"  # the same, with tokens before pages

_ROUND_TEXT: Final[dict[str, str]] = {
    # the products of a step for the rows of a round; the last for an MLP of the draft's own width
    **{f"{name}_rows": text for name, text in _FUSED_TEXT.items() if "matmul" in name or name == "rms_gate_up"},
    "down_matmul_add_draft": _ADDED_PRODUCT,
    # matmul for k = H; matmul_f32 and matmul_acc_f32 of to_bf16
    "hidden_matmul_rows": "out:bf16 " + _PRODUCT,
    "residual_matmul_f32": "out:f32 in:f32 in:bf16 i32 i32 i32",
    "residual_matmul_acc_f32": "inout:f32 in:f32 in:bf16 i32 i32 i32",
    # norm_rope_cache, but that qkv stays as it is, then attention_prefill, of the last `tokens` tokens of one sequence:
    # o, qkv, q weight, k weight, …, table [1, pages], seq_lens [1]; tokens, pages, …, eps, scale. Row r stands at place
    # seq_lens[0] - tokens + r of the sequence, in the slot there, or is not kept where its slot is -1
    "norm_append_attention_rows": f"out:bf16 in:bf16 in:bf16 in:bf16 {_APPEND} {_ATTEND_ROWS} f32 f32",
    # the same without norms
    "append_attention_rows": f"out:bf16 in:bf16 {_APPEND} {_ATTEND_ROWS} f32",
    # the same two, but that each row sees all seq_lens[0] keys
    "norm_append_attention_rows_full": f"out:bf16 in:bf16 in:bf16 in:bf16 {_APPEND} {_ATTEND_ROWS} f32 f32",
    "append_attention_rows_full": f"out:bf16 in:bf16 {_APPEND} {_ATTEND_ROWS} f32",
}

ROUND_INTERFACES: Final[Mapping[str, tuple[Param, ...]]] = {name: params(text) for name, text in _ROUND_TEXT.items()}
"""The interfaces of entries for the rows of one round of speculation, on CUDA."""
