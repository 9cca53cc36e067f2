"""The transformer kernels for a GPU: each entry's implementation, pinned to the modules it is in.

A chunk of tokens runs on cublasLt's products and our own kernels for the rest. A step of one token per sequence has its
own entries: `lay_rows`, `embedding_weighted`, then for each layer `rms_matmul`, `norm_append_attention` (without norms
of queries and keys: `append_attention`), `output_matmul_add`, `rms_gate_up`, `down_matmul_add`; then `rms_matmul_f32`,
`argmax`, `advance`. The rows of a round of speculation have the same, with names that end in `_rows`; those of a step
of more than 8 sequences end in `_wide`. For a step on recorded kernels, whose norms are not fused, there are
`embedding_bf16` and unfused products.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kern.contracts.text import SEQS, TOKENS, WIDE
from kern.kernels.cuda_launches import ROW_THREADS, Launches, operator
from kern.kernels.cuda_plan import DRAFT_MODULE, MANY_ROWS_MODULE, ROWS_MODULE, CudaPlan
from kern.kernels.implementation import FEEDBACK, Grid
from kern.manifest.expressions import Add, CeilDiv
from kern.manifest.types import Kernel

_HEADS_PER_BLOCK: Final = 8
_ELEMENTS_PER_BLOCK: Final = 2048
_QUERIES_PER_BLOCK: Final = 64
_FEEDBACK_THREADS: Final = 64


def cuda_kernels(plan: CudaPlan, modules: Mapping[str, str]) -> dict[str, Kernel]:
    """The entries for `plan`, over the symbols `tokens` and `seqs`.

    `modules` gives the SHA-256 of each file that `compile_cuda_modules` made. Raises KeyError where one is missing.
    """
    launch = Launches(plan, modules)
    rounds = {} if plan.round is None else _round_entries(launch)
    markov = {"markov_argmax": launch.markov()} if plan.markov_slots else {}
    without_norms = {
        "rope_cache": _rope_cache(launch, "rope_cache"),
        "append_attention": launch.attention("append_attention"),
    }
    return _token_entries(launch) | launch.wide() | rounds | markov | without_norms


def _rope_cache(launch: Launches, name: str) -> Kernel:
    heads = -(-(launch.plan.sizes.q_heads + 2 * launch.plan.sizes.kv_heads) // _HEADS_PER_BLOCK)
    return launch.single(name, "heads", (TOKENS, heads, 1), ROW_THREADS)


def _round_entries(launch: Launches) -> dict[str, Kernel]:
    """The entries that only a draft and the rows of a round of speculation use."""
    rows, draft = launch.plan.rows_of_round, DRAFT_MODULE if DRAFT_MODULE in launch.plan.variants else ROWS_MODULE
    alike = "residual_matmul_f32", "residual_matmul_acc_f32"
    widths = (False, True) if MANY_ROWS_MODULE in launch.plan.variants else (False,)
    attention = {
        name + WIDE * wide: launch.attention_rows(name, wide=wide)
        for norms in ("norm_", "")
        for seen in ("", "_full")
        for wide in widths
        for name in (f"{norms}append_attention_rows{seen}",)
    }
    return {
        **attention,
        **launch.products(ROWS_MODULE, rows, "_rows"),
        **{symbol: launch.matvec(symbol, module=ROWS_MODULE, rows=rows) for symbol in alike},
        "hidden_matmul_rows": launch.matvec("hidden_matmul_rows", "hidden_matmul", ROWS_MODULE, rows),
        "down_matmul_add_draft": launch.matvec("down_matmul_add_draft", "down_matmul_add", draft, rows),
        "matmul_acc_f32": operator("matmul_acc_f32", "cublaslt_bf16_tn_f32_acc"),
        "argmax_rows": launch.argmax("argmax_rows", TOKENS),
        "begin_spec": launch.single("begin_spec", "speculation", (SEQS, 1, 1), (32, 1, 1), chained=False),
        "lay_round": launch.single("lay_round", "speculation", (SEQS, 1, 1), (32, 1, 1)),
        "accept": launch.single("accept", "speculation", (SEQS, 1, 1), (32, 1, 1)),
    }


def _token_entries(launch: Launches) -> dict[str, Kernel]:
    sizes = launch.plan.sizes
    columns = -(-sizes.ffn // _ELEMENTS_PER_BLOCK)
    queries: Grid = (Add(add=(CeilDiv(ceil_div=(TOKENS, _QUERIES_PER_BLOCK)), SEQS)), sizes.q_heads, 1)
    row: Grid = (TOKENS, 1, 1)
    return {
        "embedding": launch.single("embedding", "rows", row, ROW_THREADS),
        "embedding_bf16": launch.single("embedding_bf16", "rows", row, ROW_THREADS),
        "rms_norm": launch.single("rms_norm", "rows", row, ROW_THREADS),
        "add_rms_norm": launch.single("add_rms_norm", "rows", row, ROW_THREADS),
        "norm_rope_cache": _rope_cache(launch, "norm_rope_cache"),
        "attention_prefill": launch.single(
            "attention_prefill",
            "attention_prefill",
            queries,
            (128, 1, 1),
            launch.plan.prefill_shared_mem,
            chained=False,
        ),
        "silu_mul": launch.single("silu_mul", "rows", (TOKENS, columns, 1), ROW_THREADS),
        "matmul": operator("matmul", "cublaslt_bf16_tn"),
        "matmul_f32": operator("matmul_f32", "cublaslt_bf16_tn_f32"),
        "token_nll": launch.single("token_nll", "logits", (SEQS, 1, 1), ROW_THREADS, chained=False),
        "gather_rows": launch.single("gather_rows", "rows", (SEQS, 1, 1), ROW_THREADS),
        **_feedback(launch),
        "embedding_weighted": launch.single("embedding_weighted", "rows", row, ROW_THREADS),
        **launch.products("matvec", launch.plan.rows),
        "norm_append_attention": launch.attention("norm_append_attention"),
        "qkv_matmul": launch.matvec("qkv_matmul", "hidden_matmul"),
        "output_matmul": launch.matvec("output_matmul"),
        "gate_up_matmul": launch.matvec("gate_up_matmul", "hidden_matmul"),
        "down_matmul": launch.matvec("down_matmul"),
        "logits_matmul": launch.matvec("logits_matmul", "hidden_matmul_f32"),
        "argmax": launch.argmax("argmax", SEQS),
        "to_bf16": launch.single("to_bf16", "rows", row, ROW_THREADS),
        "add_argmax": launch.add_argmax(),
        "gather_bf16": launch.single("gather_bf16", "rows", (SEQS, 1, 1), ROW_THREADS),
    }


def _feedback(launch: Launches) -> dict[str, Kernel]:
    """The entries that keep and read what is in the slots of sequences."""
    blocks: dict[str, Grid] = {"lay_tokens": (CeilDiv(ceil_div=(TOKENS, _FEEDBACK_THREADS)), 1, 1)}
    block = (_FEEDBACK_THREADS, 1, 1)
    return {
        name: launch.single(name, "feedback", blocks.get(name, (1, 1, 1)), block, chained=name != "begin")
        for name in FEEDBACK
    }
