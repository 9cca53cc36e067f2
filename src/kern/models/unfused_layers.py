"""A decoder layer on recorded kernels: the residual is bf16, a product is normed in place, q and k leave qkv."""

from __future__ import annotations

from dataclasses import dataclass

from kern.checkpoints.config import TransformerConfig
from kern.contracts.text import PAGE
from kern.manifest.builder import ManifestBuilder, ProgramBuilder
from kern.manifest.expressions import Expr
from kern.manifest.types import BufferArg, StateArg
from kern.models.buffers import BF16_BYTES, Buffers, Limits, Rows
from kern.models.layers import Attention
from kern.models.precision import RECORDED
from kern.models.weights import ROPE_TABLE


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """A block: PAGE slots of kv_heads keys and as many values, all strides in elements.

    The keys start at its first element, the values `values` further on.
    """

    values: int
    slot: int
    head: int

    def fills(self, config: TransformerConfig, block: int) -> bool:
        """Whether keys and values fill a block of `block` elements without gaps, in whatever order."""
        end = config.head_dim
        for stride, extent in sorted(((self.values, 2), (self.slot, PAGE), (self.head, config.kv_heads))):
            # Where there is but one of something, its stride is never applied.
            if extent > 1 and stride != end:
                return False
            end *= extent
        return end == block


class UnfusedBuffers(Buffers):
    """A transformer's buffers, and rows of their own for normed queries and keys."""

    def __init__(self, builder: ManifestBuilder, config: TransformerConfig, limits: Limits, block: BlockLayout) -> None:
        super().__init__(builder, config, limits, RECORDED)
        self.block = block
        self.normed_queries = builder.workspace("normed_queries", "bf16", [self.tokens, config.q_size])
        self.normed_keys = builder.workspace("normed_keys", "bf16", [self.tokens, config.kv_size])

    def layer_values(self, layer: int) -> StateArg:
        """The values of a layer, in the first page."""
        return self.layer_cache(layer).at(self.block.values * BF16_BYTES)


class UnfusedLayers:
    """Writes the layers of one program.

    A chunk of tokens takes one entry for all its products, a step of one token a sequence an entry for each: so that
    each can be replaced alone.
    """

    def __init__(self, p: ProgramBuilder, b: UnfusedBuffers, rows: Rows, attention: Attention) -> None:
        self.p, self.b, self.c, self.rows = p, b, b.config, rows
        self.attention = attention
        self.single_products = attention == "attention_decode"

    def embedding(self) -> None:
        """The residual stream's start."""
        b = self.b
        self.p.dispatch(
            "embedding_bf16", b.residual, self.rows.ids, b.weights["embedding"], self.c.hidden, label="embedding"
        )

    def layer(self, layer: int) -> None:
        """Attention and MLP of one layer; the MLP's result is added by the norm that follows."""
        b, c, label = self.b, self.c, f"L{layer}."
        self.keys_and_values(layer)
        self.attend(layer)
        self.matmul("output", b.delta, b.attended, b.weight(layer, "o_proj"), c.hidden, c.q_size, f"{label}o_proj")
        self.add_norm(b.weight(layer, "post_attention_norm"), f"{label}post_attention_norm")
        gate_up, down = b.weight(layer, "gate_up_proj"), b.weight(layer, "down_proj")
        self.matmul("gate_up", b.gate_up, b.delta, gate_up, 2 * c.ffn, c.hidden, f"{label}gate_up_proj")
        self.p.dispatch("silu_mul", b.gated, b.gate_up, c.ffn, label=f"{label}silu_mul")
        self.matmul("down", b.delta, b.gated, down, c.hidden, c.ffn, f"{label}down_proj")

    def keys_and_values(self, layer: int) -> None:
        """A layer up to its cache: the residual of the layer before, queries, keys and values."""
        b, c, label = self.b, self.c, f"L{layer}."
        norm, normed = b.weight(layer, "input_norm"), b.delta
        if layer == 0:
            normed = b.normed
            sizes = b.tokens, c.hidden, c.norm_eps
            self.p.dispatch("rms_norm_bf16", normed, b.residual, norm, *sizes, label=f"{label}input_norm")
        else:
            self.add_norm(norm, f"{label}input_norm")
        self.matmul("qkv", b.qkv, normed, b.weight(layer, "qkv_proj"), c.qkv_size, c.hidden, f"{label}qkv_proj")
        self.head_norm("q", b.normed_queries, b.queries, b.tokens * c.heads, layer)
        self.head_norm("k", b.normed_keys, b.keys, b.tokens * c.kv_heads, layer)
        places = self.rows.positions, b.weights[ROPE_TABLE]
        self.p.dispatch("rope_unfused", b.normed_queries, b.normed_keys, *places, label=f"{label}rope")
        pool = b.layer_cache(layer), b.layer_values(layer), self.rows.slots, b.page_stride
        self.p.dispatch("cache_write_unfused", b.normed_keys, b.values, *pool, label=f"{label}cache_write")

    def head_norm(self, which: str, out: BufferArg, heads: BufferArg, rows: Expr, layer: int) -> None:
        """Each head of queries or keys normed, out of qkv into rows of their own."""
        weight = self.b.weight(layer, f"{which}_norm")
        sizes = rows, self.c.head_dim, self.c.norm_eps
        self.p.dispatch(f"{which}_norm_unfused", out, heads, weight, *sizes, label=f"L{layer}.{which}_norm")

    def attend(self, layer: int) -> None:
        """Each row's heads over the keys and values of its sequence so far."""
        b = self.b
        self.p.dispatch(
            f"{self.attention}_unfused",
            b.attended,
            b.normed_queries,
            b.layer_cache(layer),
            b.layer_values(layer),
            *(b.block_table, self.rows.lengths, b.cu_seqlens_q, b.seqs, b.page_stride, self.c.head_dim**-0.5),
            label=f"L{layer}.attention",
        )

    def head(self) -> None:
        """Logits of every row."""
        b, c = self.b, self.c
        self.add_norm(b.weights["norm"], "norm")
        entry = "logits_matmul" if self.single_products else "matmul_f32"
        self.p.dispatch(entry, b.logits, b.delta, b.output_matrix, b.tokens, c.vocabulary, c.hidden, label="lm_head")

    def add_norm(self, weight: BufferArg, label: str) -> None:
        """Add the last product to the residual stream, and norm it in the product's place."""
        b, c = self.b, self.c
        sizes = b.tokens, c.hidden, c.norm_eps
        self.p.dispatch("add_rms_norm_bf16", b.delta, b.residual, weight, *sizes, label=label)

    def matmul(self, which: str, out: BufferArg, x: BufferArg, weight: BufferArg, n: int, k: int, label: str) -> None:
        """A product over all rows."""
        entry = f"{which}_matmul" if self.single_products else "matmul"
        self.p.dispatch(entry, out, x, weight, self.b.tokens, n, k, label=label)
