"""The memory of a transformer's programs: symbols, buffers, state and weights, and their names in operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from kern.checkpoints.config import TransformerConfig
from kern.contracts.text import PAGE
from kern.manifest.builder import Argument, ManifestBuilder
from kern.manifest.expressions import Add, Expr, Sym
from kern.manifest.types import BufferArg, StateArg
from kern.models.weights import LAYER_WEIGHTS, Precision, weights_of

Names: TypeAlias = Mapping[str, Argument]
"""Arguments by the names under which operations know them."""

RING: Final = 64
"""Tokens of a sequence that the ring holds: how far the device may run ahead of its reader."""
SCORE_ROWS: Final = 64
"""The most rows whose likelihoods one call computes: their logits are what takes memory."""
BF16_BYTES: Final = 2
MAX_SEQUENCES: Final = 65535
"""The most sequences of a call: some kernels have a block for each in a dimension of the grid with this limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest sizes of a call: tokens, and sequences, which are also those that have a slot."""

    chunk: int = 512
    sequences: int = 1


def rows_of(
    ids: BufferArg, positions: BufferArg, slots: BufferArg, lengths: BufferArg, starts: BufferArg | None = None
) -> dict[str, Argument]:
    """The rows of a program by name: the buffers with their ids, positions and slots, and the lengths of sequences.

    `starts` says where the rows of each sequence begin; None where each has one row.
    """
    known = {"ids": ids, "positions": positions, "slots": slots, "seq_lens": lengths}
    return {**known, **({} if starts is None else {"cu_seqlens": starts})}


def cache_of(builder: ManifestBuilder, name: str, config: TransformerConfig) -> tuple[StateArg, int]:
    """The state of a model's keys and values, and the elements of a page.

    A page holds all layers: [layer][keys or values][kv_heads][PAGE][head_dim].
    """
    elements = config.layers * 2 * config.kv_size
    return builder.state(name, bytes_per_token=elements * BF16_BYTES, granule=PAGE), elements * PAGE


class LayerBuffers:
    """The memory of a model's layers: its state and weights, the symbols, and buffers for rows.

    `squares` holds each block's share of a row's sum of squares, for kernels that fuse norms with products.
    """

    config: TransformerConfig
    tokens: Sym
    seqs: Sym
    pages: Sym
    block_table: BufferArg
    cache: StateArg
    page_stride: int
    residual: BufferArg
    normed: BufferArg
    qkv: BufferArg
    attended: BufferArg
    delta: BufferArg
    gate_up: BufferArg
    gated: BufferArg
    logits: BufferArg
    squares: BufferArg | None
    weights: Mapping[str, BufferArg]

    @property
    def names(self) -> dict[str, Argument]:
        """Every buffer, state and symbol by the name of its attribute, the weights outside layers, and the sizes."""
        c = self.config
        known = {name: value for name, value in vars(self).items() if isinstance(value, BufferArg | StateArg | Sym)}
        weights = {name: weight for name, weight in self.weights.items() if not name.startswith("layers.")}
        return {
            **known,
            **weights,
            "output_matrix": self.output_matrix,
            "queries": self.qkv,
            "keys": self.qkv.at(c.q_size * BF16_BYTES),
            "values": self.qkv.at((c.q_size + c.kv_size) * BF16_BYTES),
            "m": self.tokens,
            "hidden": c.hidden,
            "ffn": c.ffn,
            "gate_up_size": 2 * c.ffn,
            "q_size": c.q_size,
            "qkv_size": c.qkv_size,
            "vocabulary": c.vocabulary,
            "q_heads": c.heads,
            "kv_heads": c.kv_heads,
            "head_dim": c.head_dim,
            "row_stride": c.qkv_size,
            "page_stride": self.page_stride,
            "eps": c.norm_eps,
            "scale": c.head_dim**-0.5,
        }

    def names_of(self, layer: int) -> dict[str, Argument]:
        """A layer's weights, the norm that follows it, and its keys and values in the first page."""
        weights = {name: f"layers.{layer}.{name}" for name in LAYER_WEIGHTS}
        last = layer == self.config.layers - 1
        return {
            **{name: self.weights[weight] for name, weight in weights.items() if weight in self.weights},
            "next_norm": self.weights["norm" if last else f"layers.{layer + 1}.input_norm"],
            "pool": self.layer_cache(layer),
        }

    @property
    def output_matrix(self) -> BufferArg:
        """The matrix of the logits: with tied embeddings the embedding table."""
        return self.weights["embedding" if self.config.tied_embeddings else "lm_head"]

    def layer_cache(self, layer: int) -> StateArg:
        """The keys and values of a layer, in the first page."""
        return self.cache.at(layer * 2 * self.config.kv_size * PAGE * BF16_BYTES)


class Buffers(LayerBuffers):
    """Everything a transformer declares, under the names of the text contract where it has one."""

    def __init__(
        self,
        builder: ManifestBuilder,
        config: TransformerConfig,
        limits: Limits,
        precision: Precision,
        blocks: Expr | None = None,
    ) -> None:
        """`blocks` are those of a product, for kernels that fuse norms with products."""
        self.config = config
        self.tokens = tokens = builder.symbol("tokens", max=limits.chunk)
        self.seqs = seqs = builder.symbol("seqs", max=max(limits.sequences, SCORE_ROWS))
        self.pages = pages = builder.symbol("pages", max=-(-config.max_positions // PAGE))
        self.cache, self.page_stride = cache_of(builder, "kv", config)

        self.token_ids = builder.input("token_ids", "i64", [tokens])
        self.positions = builder.input("positions", "i64", [tokens])
        self.slot_mapping = builder.input("slot_mapping", "i64", [tokens])
        self.block_table = builder.input("block_table", "i32", [seqs, pages])
        self.seq_lens = builder.input("seq_lens", "i32", [seqs])
        self.cu_seqlens_q = builder.input("cu_seqlens_q", "i32", [Add(add=(seqs, 1))])
        self.row_slots = builder.input("row_slots", "i32", [seqs])
        self.logits_rows = builder.input("logits_rows", "i64", [seqs])
        self.targets = builder.input("targets", "i64", [seqs])
        self.next_token = builder.output("next_token", "i64", [seqs])
        self.nll = builder.output("nll", "f32", [seqs])

        self.slot_token = builder.carry("slot_token", "i64", [limits.sequences])
        self.slot_position = builder.carry("slot_position", "i64", [limits.sequences])
        self.token_ring = builder.carry("token_ring", "i64", [limits.sequences, RING])
        self.logits = builder.carry("logits", "f32", [seqs, config.vocabulary])
        self.scored = builder.carry("scored", "bf16", [tokens, config.hidden])

        self.step_token = builder.workspace("step_token", "i64", [seqs])
        self.step_position = builder.workspace("step_position", "i64", [seqs])
        self.step_slot = builder.workspace("step_slot", "i64", [seqs])
        self.step_length = builder.workspace("step_length", "i32", [seqs])
        self.row_ids = builder.workspace("row_ids", "i64", [tokens])
        self.gathered = builder.workspace("gathered", "bf16", [seqs, config.hidden])
        self.scored_logits = builder.workspace("scored_logits", "f32", [seqs, config.vocabulary])
        self.residual = builder.workspace("residual", precision.residual, [tokens, config.hidden])
        self.normed = builder.workspace("normed", "bf16", [tokens, config.hidden])
        self.qkv = builder.workspace("qkv", "bf16", [tokens, config.qkv_size])
        self.attended = builder.workspace("attended", "bf16", [tokens, config.q_size])
        self.delta = builder.workspace("delta", "bf16", [tokens, config.hidden])
        self.gate_up = builder.workspace("gate_up", "bf16", [tokens, 2 * config.ffn])
        self.gated = builder.workspace("gated", "bf16", [tokens, config.ffn])
        self.weights = {
            w.name: builder.weight(w.name, w.dtype, w.shape) for w in weights_of(config, precision).values()
        }
        self.squares = None if blocks is None else builder.workspace("squares", "f32", [tokens, blocks])

    @property
    def chunk_rows(self) -> dict[str, Argument]:
        """The rows of a chunk of tokens, as the host writes them."""
        return rows_of(self.token_ids, self.positions, self.slot_mapping, self.seq_lens, self.cu_seqlens_q)

    @property
    def mixed_rows(self) -> dict[str, Argument]:
        """The rows of a chunk of tokens whose ids `lay_tokens` completes from the slots."""
        return {**self.chunk_rows, "ids": self.row_ids}

    @property
    def step_rows(self) -> dict[str, Argument]:
        """The rows of a step of one token per sequence, as `lay_rows` takes them from the slots."""
        return rows_of(self.step_token, self.step_position, self.step_slot, self.step_length)
