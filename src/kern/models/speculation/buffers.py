"""The memory of a draft's programs besides the target's: carries of a round, its state, its weights."""

from __future__ import annotations

from typing import Final

from kern.manifest.builder import Argument, ManifestBuilder
from kern.models.buffers import BF16_BYTES, RING, Buffers, LayerBuffers, Names, cache_of, rows_of
from kern.models.speculation.draft import PREFIX, Draft

I64_BYTES: Final = 8
F32_BYTES: Final = 4


class DraftBuffers(LayerBuffers):
    """The draft's layers, on the target's workspaces, which are wide enough; and the carries of a round.

    `rows` is the rows of a round: the anchor and its drafts. What persists between rounds has a place for each of
    `sequences` slots; the rest holds the rows of a round, sequence after sequence.
    """

    def __init__(self, builder: ManifestBuilder, target: Buffers, draft: Draft, sequences: int) -> None:
        self.draft, self.target = draft.config, target
        self.config = config = draft.config.transformer
        self.tokens, self.seqs, self.pages = target.tokens, target.seqs, target.pages
        self.block_table = target.block_table
        self.residual, self.normed, self.qkv = target.residual, target.normed, target.qkv
        self.attended, self.delta = target.attended, target.delta
        self.gate_up, self.gated, self.squares = target.gate_up, target.gated, target.squares
        self.row_slots, self.slot_token = target.row_slots, target.slot_token
        self.slot_position, self.token_ring = target.slot_position, target.token_ring
        self.token_ids, self.positions = target.token_ids, target.positions
        self.cache, self.page_stride = cache_of(builder, "draft_kv", config)
        own = {w.name: builder.weight(w.name, w.dtype, w.shape) for w in draft.weights.values()}
        theirs = {**target.weights, "lm_head": target.output_matrix}
        shared = {name: theirs[name] for name in draft.shared}
        self.weights = {name.removeprefix(PREFIX): weight for name, weight in own.items()} | shared

        self.block = draft.config.block
        self.rows = draft.config.rows
        seqs, each_row, each_draft = self.seqs, self.seqs * self.rows, self.seqs * self.block
        self.accepted = builder.carry("accepted", "i32", [sequences, RING])
        self.round_count = builder.carry("round_count", "i64", [sequences])

        self.round_tokens = builder.carry("round_tokens", "i64", [each_row])
        self.round_positions = builder.carry("round_positions", "i64", [each_row])
        self.round_slots = builder.carry("round_slots", "i64", [each_row])
        self.round_length = builder.carry("round_length", "i32", [seqs])
        self.round_starts = builder.carry("round_starts", "i32", [seqs + 1])
        self.predicted = builder.carry("predicted", "i64", [each_row])
        self.features = builder.carry("features", "f32", [self.tokens, config.hidden])

        self.block_ids = builder.workspace("block_ids", "i64", [each_draft])
        self.block_positions = builder.workspace("block_positions", "i64", [each_draft])
        self.block_slots = builder.workspace("block_slots", "i64", [each_draft])
        self.block_length = builder.workspace("block_length", "i32", [seqs])
        self.block_starts = builder.workspace("block_starts", "i32", [seqs + 1])
        self.logits = builder.workspace("round_logits", "f32", [each_row, config.vocabulary])
        self.tapped = builder.workspace("tapped", "bf16", [self.tokens, config.hidden])
        self.context = builder.workspace("context", "bf16", [self.tokens, config.hidden])
        self.context_kv = builder.workspace("context_kv", "bf16", [self.tokens, 2 * config.kv_size])

    @property
    def names(self) -> dict[str, Argument]:
        """Those of a model's layers, and the sizes of a round."""
        return super().names | {
            "rank": self.draft.rank,
            "rows": self.rows,
            "block": self.block,
            "mask": self.draft.mask,
        }

    def names_of(self, layer: int) -> dict[str, Argument]:
        """Those of a model's layers, and the rows of the qkv projection that make keys and values."""
        names, config = super().names_of(layer), self.config
        qkv = self.weights[f"layers.{layer}.qkv_proj"]
        return names | {"kv_proj": qkv.at(config.q_size * config.hidden * BF16_BYTES)}

    @property
    def tap_names(self) -> Names:
        """What the operations of a tap take besides the target's buffers."""
        fc = {name: weight for name, weight in self.weights.items() if name.startswith("fc.")}
        return {"tapped": self.tapped, "features": self.features, **fc}

    def chain(self, builder: ManifestBuilder) -> Names:
        """A step of the chain of drafts in several dispatches: the rows of the tokens before, and what to add."""
        return {
            "markov_row": builder.workspace("markov_row", "bf16", [self.seqs, self.draft.rank]),
            "markov_delta": builder.workspace("markov_delta", "f32", [self.seqs, self.config.vocabulary]),
        }

    @property
    def verified_rows(self) -> dict[str, Argument]:
        """The rows that the target verifies, and where their logits go."""
        rows = rows_of(self.round_tokens, self.round_positions, self.round_slots, self.round_length, self.round_starts)
        return {**rows, "logits": self.logits}

    @property
    def block_rows(self) -> dict[str, Argument]:
        """The rows of the draft's block: the anchor, and a mask for each draft but the last."""
        return rows_of(self.block_ids, self.block_positions, self.block_slots, self.block_length, self.block_starts)

    def row_names(self, row: int) -> dict[str, Argument]:
        """The token of a row of the first sequence's round, the one after it, and the row's logits."""
        before, after = (self.round_tokens.at(place * I64_BYTES) for place in (row, row + 1))
        return {"before": before, "next": after, "logits": self.logits.at(row * self.config.vocabulary * F32_BYTES)}
