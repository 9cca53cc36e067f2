"""What a transformer's programs work on: symbols, buffers, state and weights, and views of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kern.checkpoints.config import TransformerConfig
from kern.contracts.text import PAGE
from kern.manifest.builder import ManifestBuilder
from kern.manifest.expressions import Add, Sym
from kern.manifest.types import BufferArg, StateArg
from kern.models.precision import Precision
from kern.models.weights import weights_of

RING: Final = 64
"""Tokens that the ring holds: how far the device may run ahead of its reader."""
BF16_BYTES: Final = 2
MAX_SEQUENCES: Final = 65535
"""Most sequences of a call: some kernels have a block for each in a dimension of the grid that holds no more."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Greatest sizes of a call: tokens of a prefill and of a scoring chunk, sequences."""

    chunk: int = 512
    score_chunk: int = 64
    sequences: int = 1


@dataclass(frozen=True, slots=True)
class Rows:
    """What the rows of a program are: where their ids, positions, slots and sequence lengths stand.

    `starts` is where the rows of each sequence begin; there is none where each has one row.
    """

    ids: BufferArg
    positions: BufferArg
    slots: BufferArg
    lengths: BufferArg
    starts: tuple[BufferArg, ...] = ()


def cache_of(builder: ManifestBuilder, name: str, config: TransformerConfig) -> tuple[StateArg, int]:
    """The state of a model's keys and values, and the elements of a page.

    A page holds all layers: [layer][keys or values][kv_heads][PAGE][head_dim].
    """
    elements = config.layers * 2 * config.kv_size
    return builder.state(name, bytes_per_token=elements * BF16_BYTES, granule=PAGE), elements * PAGE


class LayerBuffers:
    """What the layers of a model work on: its sizes, state and weights, the symbols, and memory for rows."""

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
    weights: Mapping[str, BufferArg]

    @property
    def queries(self) -> BufferArg:
        """The query heads of each row of qkv."""
        return self.qkv

    @property
    def keys(self) -> BufferArg:
        """The key heads of each row of qkv."""
        return self.qkv.at(self.config.q_size * BF16_BYTES)

    @property
    def values(self) -> BufferArg:
        """The value heads of each row of qkv."""
        return self.qkv.at((self.config.q_size + self.config.kv_size) * BF16_BYTES)

    @property
    def output_matrix(self) -> BufferArg:
        """The matrix of the logits: with tied embeddings the embedding table."""
        return self.weights["embedding" if self.config.tied_embeddings else "lm_head"]

    def layer_cache(self, layer: int) -> StateArg:
        """The keys and values of a layer, in the first page."""
        return self.cache.at(layer * 2 * self.config.kv_size * PAGE * BF16_BYTES)

    def weight(self, layer: int, name: str) -> BufferArg:
        """A layer's weight."""
        return self.weights[f"layers.{layer}.{name}"]


class Buffers(LayerBuffers):
    """Everything a transformer declares, under the names of the text contract where it has one."""

    def __init__(
        self, builder: ManifestBuilder, config: TransformerConfig, limits: Limits, precision: Precision
    ) -> None:
        self.config = config
        self.tokens = tokens = builder.symbol("tokens", max=limits.chunk)
        self.seqs = seqs = builder.symbol("seqs", max=limits.sequences)
        self.pages = pages = builder.symbol("pages", max=-(-config.max_positions // PAGE))
        self.cache, self.page_stride = cache_of(builder, "kv", config)

        self.token_ids = builder.input("token_ids", "i64", [tokens])
        self.positions = builder.input("positions", "i64", [tokens])
        self.slot_mapping = builder.input("slot_mapping", "i64", [tokens])
        self.block_table = builder.input("block_table", "i32", [seqs, pages])
        self.seq_lens = builder.input("seq_lens", "i32", [seqs])
        self.cu_seqlens_q = builder.input("cu_seqlens_q", "i32", [Add(add=(seqs, 1))])
        self.targets = builder.input("targets", "i64", [tokens])
        self.next_token = builder.output("next_token", "i64", [seqs])
        self.nll = builder.output("nll", "f32", [tokens])

        self.step_token = builder.carry("step_token", "i64", [seqs])
        self.step_position = builder.carry("step_position", "i64", [seqs])
        self.step_slot = builder.carry("step_slot", "i64", [seqs])
        self.step_length = builder.carry("step_length", "i32", [seqs])
        self.token_ring = builder.carry("token_ring", "i64", [seqs, RING])

        self.residual = builder.workspace("residual", precision.residual, [tokens, config.hidden])
        self.normed = builder.workspace("normed", "bf16", [tokens, config.hidden])
        self.qkv = builder.workspace("qkv", "bf16", [tokens, config.qkv_size])
        self.attended = builder.workspace("attended", "bf16", [tokens, config.q_size])
        self.delta = builder.workspace("delta", "bf16", [tokens, config.hidden])
        self.gate_up = builder.workspace("gate_up", "bf16", [tokens, 2 * config.ffn])
        self.gated = builder.workspace("gated", "bf16", [tokens, config.ffn])
        self.logits = builder.workspace("logits", "f32", [tokens, config.vocabulary])
        self.weights = {
            w.name: builder.weight(w.name, w.dtype, w.shape) for w in weights_of(config, precision).values()
        }

    @property
    def chunk_rows(self) -> Rows:
        """The rows of a chunk of tokens, as the host writes them."""
        return Rows(self.token_ids, self.positions, self.slot_mapping, self.seq_lens, (self.cu_seqlens_q,))

    @property
    def step_rows(self) -> Rows:
        """The rows of a step of one token a sequence, as the step before left them."""
        return Rows(self.step_token, self.step_position, self.step_slot, self.step_length)

    @property
    def carries(self) -> tuple[BufferArg, ...]:
        """What a step leaves for the next."""
        return self.step_token, self.step_position, self.step_slot, self.step_length, self.token_ring
