"""A decoder layer on recorded kernels: the residual is bf16, products are normed in place, q and k leave qkv."""

from __future__ import annotations

from dataclasses import dataclass

from kern.checkpoints.config import TransformerConfig
from kern.contracts.text import PAGE
from kern.manifest.builder import Argument, ManifestBuilder
from kern.models.buffers import BF16_BYTES, Buffers, Limits
from kern.models.layers import Attention, LayerTable, Operation, op
from kern.models.weights import RECORDED


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
    """A transformer's buffers, and separate ones for normed queries and keys."""

    def __init__(self, builder: ManifestBuilder, config: TransformerConfig, limits: Limits, block: BlockLayout) -> None:
        super().__init__(builder, config, limits, RECORDED)
        self.block = block
        self.normed_queries = builder.workspace("normed_queries", "bf16", [self.tokens, config.q_size])
        self.normed_keys = builder.workspace("normed_keys", "bf16", [self.tokens, config.kv_size])

    @property
    def names(self) -> dict[str, Argument]:
        """Those of a transformer, and the rows of normed queries and keys."""
        rows = {"query_rows": self.tokens * self.config.heads, "key_rows": self.tokens * self.config.kv_heads}
        return super().names | rows

    def names_of(self, layer: int) -> dict[str, Argument]:
        """Those of a transformer, and the layer's values in the first page."""
        values = self.layer_cache(layer).at(self.block.values * BF16_BYTES)
        return super().names_of(layer) | {"pool_values": values}


def unfused_layers(attention: Attention) -> LayerTable:
    """The operations of a layer, and what is before and after the layers.

    A chunk of tokens takes one entry for all its products, a step of one token per sequence an entry for each, so that
    each can be replaced alone.
    """

    def product(label: str, which: str, y: str, x: str, n: str, k: str) -> Operation:
        return op(
            label, f"{which}_matmul" if attention == "attention_decode" else "matmul", y=y, x=x, w=label, n=n, k=k
        )

    def added(label: str) -> Operation:
        return op(label, "add_rms_norm_bf16", x="residual", weight=label)

    first_norm = op(
        "input_norm", "rms_norm_bf16", y="normed", x="residual", weight="input_norm", rows="tokens", width="hidden"
    )
    logits = "logits_matmul" if attention == "attention_decode" else "matmul_f32"
    queries, keys = "normed_queries", "normed_keys"
    cached = {"key_cache": "pool", "value_cache": "pool_values"}
    return LayerTable(
        embedding=op("embedding", "embedding_bf16", x="residual", table="embedding"),
        first=(first_norm, product("qkv_proj", "qkv", "qkv", "normed", "qkv_size", "hidden")),
        to_cache=(
            added("input_norm"),
            product("qkv_proj", "qkv", "qkv", "delta", "qkv_size", "hidden"),
            op(
                "q_norm", "q_norm_unfused", y=queries, x="queries", weight="q_norm", rows="query_rows", width="head_dim"
            ),
            op("k_norm", "k_norm_unfused", y=keys, x="keys", weight="k_norm", rows="key_rows", width="head_dim"),
            op("rope", "rope_unfused", q=queries, k=keys),
            op("cache_write", "cache_write_unfused", k=keys, v="values", **cached),
        ),
        from_cache=(
            op("attention", f"{attention}_unfused", o="attended", q=queries, cu_seqlens="cu_seqlens_q", **cached),
            product("o_proj", "output", "delta", "attended", "hidden", "q_size"),
            added("post_attention_norm"),
            product("gate_up_proj", "gate_up", "gate_up", "delta", "gate_up_size", "hidden"),
            op("silu_mul", "silu_mul", y="gated"),
            product("down_proj", "down", "delta", "gated", "hidden", "ffn"),
        ),
        norm=(added("norm"),),
        head=(op("lm_head", logits, y="logits", x="delta", w="output_matrix", n="vocabulary", k="hidden"),),
        normed="delta",
    )
