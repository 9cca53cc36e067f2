"""A decoder layer as one dispatch for each operation: products, norms, rotation, cache, attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kern.manifest.builder import ProgramBuilder
from kern.manifest.types import BufferArg, Kernel
from kern.models.buffers import LayerBuffers, Rows
from kern.models.weights import ROPE_TABLE

Attention = Literal["attention_prefill", "attention_decode", "attention_full"]


class Layers:
    """Writes the layers of one program.

    Where the kernels have an entry for head norms, rotation and cache write in one, it takes the place of the three.
    """

    def __init__(
        self, p: ProgramBuilder, b: LayerBuffers, kernels: Mapping[str, Kernel], rows: Rows, attention: Attention
    ) -> None:
        self.p, self.b, self.c = p, b, b.config
        self.rows, self.attention = rows, attention
        fused = "norm_rope_cache" if b.config.qk_norm else "rope_cache"
        self.fused_cache = fused if fused in kernels else None

    def embedding(self) -> None:
        """The residual stream's start."""
        b = self.b
        self.p.dispatch(
            "embedding", b.residual, self.rows.ids, b.weights["embedding"], self.c.hidden, label="embedding"
        )

    def layer(self, layer: int) -> None:
        """Attention and MLP of one layer; the MLP's result is added by the norm that follows."""
        b, c, label = self.b, self.c, f"L{layer}."
        self.keys_and_values(layer)
        self.attend(layer)
        self.matmul(b.delta, b.attended, b.weight(layer, "o_proj"), c.hidden, c.q_size, f"{label}o_proj")
        self.add_norm(b.weight(layer, "post_attention_norm"), f"{label}post_attention_norm")
        gate_up, down = b.weight(layer, "gate_up_proj"), b.weight(layer, "down_proj")
        self.matmul(b.gate_up, b.normed, gate_up, 2 * c.ffn, c.hidden, f"{label}gate_up_proj")
        self.p.dispatch("silu_mul", b.gated, b.gate_up, c.ffn, label=f"{label}silu_mul")
        self.matmul(b.delta, b.gated, down, c.hidden, c.ffn, f"{label}down_proj")

    def keys_and_values(self, layer: int) -> None:
        """A layer up to its cache: the residual of the layer before, queries, keys and values."""
        b, c, label = self.b, self.c, f"L{layer}."
        self.input_norm(layer)
        self.matmul(b.qkv, b.normed, b.weight(layer, "qkv_proj"), c.qkv_size, c.hidden, f"{label}qkv_proj")
        if self.fused_cache is not None:
            self.cache_in_one(self.fused_cache, layer)
        else:
            self.cache(layer)

    def input_norm(self, layer: int) -> None:
        """The residual stream, with what the layer before adds to it, normed."""
        b, c, label = self.b, self.c, f"L{layer}.input_norm"
        norm = b.weight(layer, "input_norm")
        if layer == 0:
            self.p.dispatch("rms_norm", b.normed, b.residual, norm, c.hidden, c.norm_eps, label=label)
        else:
            self.add_norm(norm, label)

    def cache(self, layer: int) -> None:
        """Head norms where the model has them, rotation, keys and values into their slots."""
        b, c, label = self.b, self.c, f"L{layer}."
        if c.qk_norm:
            for kernel, heads, name in (("q_head_norm", b.queries, "q_norm"), ("k_head_norm", b.keys, "k_norm")):
                weight = b.weight(layer, name)
                self.p.dispatch(kernel, heads, weight, c.head_dim, c.qkv_size, c.norm_eps, label=f"{label}{name}")
        table = b.weights[ROPE_TABLE]
        self.p.dispatch("rope", b.qkv, self.rows.positions, table, c.head_dim, c.qkv_size, label=f"{label}rope")
        sizes = c.kv_heads, c.head_dim, c.qkv_size, b.page_stride
        pool = b.layer_cache(layer)
        self.p.dispatch("cache_write", b.keys, b.values, pool, self.rows.slots, *sizes, label=f"{label}cache_write")

    def cache_in_one(self, kernel: str, layer: int) -> None:
        """The same by one kernel."""
        b, c = self.b, self.c
        norms = [b.weight(layer, "q_norm"), b.weight(layer, "k_norm")] if c.qk_norm else []
        places = self.rows.positions, b.weights[ROPE_TABLE], b.layer_cache(layer), self.rows.slots
        sizes = c.heads, c.kv_heads, c.head_dim, c.qkv_size, b.page_stride
        eps = [c.norm_eps] if c.qk_norm else []
        self.p.dispatch(kernel, b.qkv, *norms, *places, *sizes, *eps, label=f"L{layer}.{kernel}")

    def attend(self, layer: int) -> None:
        """Each row's heads over the keys and values of its sequence so far."""
        b, c = self.b, self.c
        self.p.dispatch(
            self.attention,
            b.attended,
            b.queries,
            b.layer_cache(layer),
            *(b.block_table, self.rows.lengths, *self.rows.starts),
            b.seqs,
            b.pages,
            *(c.heads, c.kv_heads, c.head_dim, c.qkv_size, b.page_stride),
            c.head_dim**-0.5,
            label=f"L{layer}.attention",
        )

    def head(self) -> None:
        """Logits of every row."""
        b, c = self.b, self.c
        self.add_norm(b.weights["norm"], "norm")
        self.p.dispatch(
            "matmul_f32", b.logits, b.normed, b.output_matrix, b.tokens, c.vocabulary, c.hidden, label="lm_head"
        )

    def add_norm(self, weight: BufferArg, label: str) -> None:
        """Add the last product to the residual stream, and norm it."""
        b, c = self.b, self.c
        self.p.dispatch("add_rms_norm", b.normed, b.residual, b.delta, weight, c.hidden, c.norm_eps, label=label)

    def matmul(self, out: BufferArg, x: BufferArg, weight: BufferArg, n: int, k: int, label: str) -> None:
        """A product over all rows."""
        self.p.dispatch("matmul", out, x, weight, self.b.tokens, n, k, label=label)
