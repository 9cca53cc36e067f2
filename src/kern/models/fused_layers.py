"""A decoder layer of a few rows in five dispatches, for kernels that fuse what is around a product.

A product that follows a norm takes the residual stream times the norm's weight, and divides the root mean square out
of its sums; one that is added to the stream leaves both for the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kern.manifest.builder import ManifestBuilder, ProgramBuilder
from kern.manifest.expressions import Sym
from kern.manifest.types import BufferArg, Kernel
from kern.models.buffers import LayerBuffers, Rows
from kern.models.weights import ROPE_TABLE

_FIRST: Final = "rms_matmul"


@dataclass(frozen=True, slots=True)
class Entries:
    """The kernels of a kind of rows: how the names of its products and of its attention end, and its last product."""

    products: str
    attention: str
    down: str


STEP: Final = Entries("", "", "down_matmul_add")
"""One token of each sequence."""
ROUND: Final = Entries("_rows", "_rows", "down_matmul_add_rows")
"""Tokens of one sequence, each after the one before."""
BLOCK: Final = Entries("_rows", "_rows_full", "down_matmul_add_draft")
"""Tokens of one sequence that see each other, in a draft's layers."""


def squares_of(builder: ManifestBuilder, kernels: Mapping[str, Kernel], tokens: Sym) -> BufferArg | None:
    """Memory for the shares of each row's sum of squares, one a block of a product; None where kernels fuse nothing."""
    if _FIRST not in kernels:
        return None
    return builder.workspace("squares", "f32", [tokens, kernels[_FIRST].impl.steps[0].grid[0]])


class FusedLayers:
    """Writes the layers of one program."""

    def __init__(self, p: ProgramBuilder, b: LayerBuffers, rows: Rows, squares: BufferArg, entries: Entries) -> None:
        self.p, self.b, self.c = p, b, b.config
        self.rows, self.squares, self.entries = rows, squares, entries

    def embedding(self) -> None:
        """The residual stream's start."""
        b, norm = self.b, self.b.weight(0, "input_norm")
        out = b.normed, self.squares, b.residual
        table = b.weights["embedding"]
        self.p.dispatch("embedding_weighted", *out, self.rows.ids, table, norm, self.c.hidden, label="embedding")

    def layer(self, layer: int) -> None:
        """Attention and MLP of one layer, with the additions that complete its output."""
        b, c = self.b, self.c
        last = layer == c.layers - 1
        following = b.weights["norm"] if last else b.weight(layer + 1, "input_norm")
        self._normed("rms_matmul", b.qkv, b.weight(layer, "qkv_proj"), c.qkv_size, f"L{layer}.qkv_proj")
        self.attend(layer)
        self._added(
            "output_matmul_add" + self.entries.products,
            b.attended,
            *(b.weight(layer, "o_proj"), b.weight(layer, "post_attention_norm")),
            c.q_size,
            f"L{layer}.o_proj",
        )
        self._normed("rms_gate_up", b.gated, b.weight(layer, "gate_up_proj"), c.ffn, f"L{layer}.gate_up_proj")
        self._added(self.entries.down, b.gated, b.weight(layer, "down_proj"), following, c.ffn, f"L{layer}.down_proj")

    def attend(self, layer: int) -> None:
        """Head norms, rotation, cache write and attention."""
        b, c, rows, ending = self.b, self.c, self.rows, self.entries.attention
        norms = [b.weight(layer, "q_norm"), b.weight(layer, "k_norm")] if c.qk_norm else []
        eps = [c.norm_eps] if c.qk_norm else []
        count = [b.tokens] if ending else []
        self.p.dispatch(
            ("norm_append_attention" if c.qk_norm else "append_attention") + ending,
            b.attended,
            b.qkv,
            *norms,
            *(rows.positions, b.weights[ROPE_TABLE], b.layer_cache(layer), rows.slots, b.block_table, rows.lengths),
            *count,
            *(b.pages, c.heads, c.kv_heads, c.head_dim, c.qkv_size, b.page_stride),
            *eps,
            c.head_dim**-0.5,
            label=f"L{layer}.attention",
        )

    def head(self) -> None:
        """Logits of every row."""
        self._normed("rms_matmul_f32", self.b.logits, self.b.output_matrix, self.c.vocabulary, "lm_head")

    def _normed(self, kernel: str, out: BufferArg, matrix: BufferArg, n: int, label: str) -> None:
        b, c = self.b, self.c
        sizes = b.tokens, n, c.hidden, c.norm_eps
        self.p.dispatch(kernel + self.entries.products, out, b.normed, self.squares, matrix, *sizes, label=label)

    def _added(self, kernel: str, x: BufferArg, matrix: BufferArg, norm: BufferArg, k: int, label: str) -> None:
        b = self.b
        out = b.normed, self.squares, b.residual
        self.p.dispatch(kernel, *out, x, matrix, norm, b.tokens, self.c.hidden, k, label=label)
