"""A decoder layer of a few rows in five dispatches, for kernels that fuse what is around a product.

A product that follows a norm takes the residual stream times the norm's weight, and divides the root mean square out
of its sums; one that is added to the stream leaves both for the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kern.checkpoints.config import TransformerConfig
from kern.manifest.expressions import Expr
from kern.manifest.types import Kernel
from kern.models.layers import LayerTable, Operation, op


@dataclass(frozen=True, slots=True)
class FusedEntries:
    """The kernels for a kind of rows: how the names of its products and of its attention end, and its last product."""

    products: str
    attention: str
    down: str


STEP: Final = FusedEntries("", "", "down_matmul_add")
"""One token of each of a few sequences."""
WIDE: Final = FusedEntries("_wide", "", "down_matmul_add_wide")
"""One token of each of many sequences."""
FEW_ROWS: Final = 8
"""The rows up to which STEP is the faster one."""
ROUND: Final = FusedEntries("_rows", "_rows", "down_matmul_add_rows")
"""Tokens of one sequence, each after the one before."""
BLOCK: Final = FusedEntries("_rows", "_rows_full", "down_matmul_add_draft")
"""Tokens of one sequence that see each other, in a draft's layers."""
ROUND_WIDE: Final = FusedEntries("_wide", "_rows_wide", "down_matmul_add_wide")
"""The same as ROUND of several sequences."""
BLOCK_WIDE: Final = FusedEntries("_wide", "_rows_full_wide", "down_matmul_add_wide")
"""The same as BLOCK of several sequences, for a draft whose MLP is as wide as its target's."""


def product_blocks(kernels: Mapping[str, Kernel]) -> Expr | None:
    """The blocks of a fused product; None where the kernels fuse nothing."""
    return kernels["rms_matmul"].impl.steps[0].grid[0] if "rms_matmul" in kernels else None


def has_wide_products(kernels: Mapping[str, Kernel]) -> bool:
    """Whether there are products for a step of many sequences."""
    return "rms_matmul_wide" in kernels


def fused_layers(config: TransformerConfig, entries: FusedEntries) -> LayerTable:
    """The five dispatches of a layer, and what is before and after the layers."""
    attention = ("norm_append_attention" if config.qk_norm else "append_attention") + entries.attention

    def normed(label: str, kernel: str, y: str, w: str, n: str) -> Operation:
        return op(label, kernel + entries.products, y=y, weighted="normed", w=w, n=n, k="hidden")

    def added(label: str, kernel: str, x: str, k: str, norm: str) -> Operation:
        return op(label, kernel, weighted="normed", x=x, w=label, weight=norm, n="hidden", k=k)

    return LayerTable(
        embedding=op(
            "embedding", "embedding_weighted", weighted="normed", x="residual", table="embedding", weight="input_norm"
        ),
        first=(),
        to_cache=(
            normed("qkv_proj", "rms_matmul", "qkv", "qkv_proj", "qkv_size"),
            op("attention", attention, o="attended"),
        ),
        from_cache=(
            added("o_proj", f"output_matmul_add{entries.products}", "attended", "q_size", "post_attention_norm"),
            normed("gate_up_proj", "rms_gate_up", "gated", "gate_up_proj", "ffn"),
            added("down_proj", entries.down, "gated", "ffn", "next_norm"),
        ),
        norm=(),
        head=(normed("lm_head", "rms_matmul_f32", "logits", "output_matrix", "vocabulary"),),
    )
