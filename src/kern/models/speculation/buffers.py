"""What a draft's programs work on beside the target's memory: carries of a round, its state, its weights."""

from __future__ import annotations

from typing import Final

from kern.manifest.builder import ManifestBuilder
from kern.manifest.types import BufferArg
from kern.models.buffers import BF16_BYTES, RING, Buffers, LayerBuffers, Rows, cache_of
from kern.models.speculation.draft import PREFIX, Draft

I64_BYTES: Final = 8
F32_BYTES: Final = 4


class DraftBuffers(LayerBuffers):
    """The draft's layers on the target's workspaces, which are wide enough; and what a round hands to the next.

    `rows` is the rows of a round: the anchor and its drafts.
    """

    def __init__(self, builder: ManifestBuilder, target: Buffers, draft: Draft) -> None:
        self.draft, self.target = draft.config, target
        self.config = config = draft.config.transformer
        self.tokens, self.seqs, self.pages = target.tokens, target.seqs, target.pages
        self.block_table = target.block_table
        self.residual, self.normed, self.qkv = target.residual, target.normed, target.qkv
        self.attended, self.delta = target.attended, target.delta
        self.gate_up, self.gated, self.logits = target.gate_up, target.gated, target.logits
        self.cache, self.page_stride = cache_of(builder, "draft_kv", config)
        own = {w.name: builder.weight(w.name, w.dtype, w.shape) for w in draft.weights.values()}
        shared = {name: self._of_target(name) for name in draft.shared}
        self.weights = {name.removeprefix(PREFIX): weight for name, weight in own.items()} | shared

        self.block = draft.config.block
        self.rows = draft.config.rows
        seqs, each_row, each_draft = self.seqs, self.seqs * self.rows, self.seqs * self.block
        self.round_tokens = builder.carry("round_tokens", "i64", [each_row])
        self.round_positions = builder.carry("round_positions", "i64", [each_row])
        self.round_slots = builder.carry("round_slots", "i64", [each_row])
        self.round_length = builder.carry("round_length", "i32", [seqs])
        self.round_starts = builder.carry("round_starts", "i32", [seqs + 1])
        self.block_ids = builder.carry("block_ids", "i64", [each_draft])
        self.block_length = builder.carry("block_length", "i32", [seqs])
        self.block_starts = builder.carry("block_starts", "i32", [seqs + 1])
        self.feature_positions = builder.carry("feature_positions", "i64", [each_row])
        self.feature_slots = builder.carry("feature_slots", "i64", [each_row])
        self.features = builder.carry("features", "f32", [self.tokens, config.hidden])
        self.predicted = builder.carry("predicted", "i64", [each_row])
        self.accepted = builder.carry("accepted", "i32", [seqs, RING])
        self.round_count = builder.carry("round_count", "i64", [seqs])

        self.tapped = builder.workspace("tapped", "bf16", [self.tokens, config.hidden])
        self.context = builder.workspace("context", "bf16", [self.tokens, config.hidden])
        self.context_kv = builder.workspace("context_kv", "bf16", [self.tokens, 2 * config.kv_size])

    def _of_target(self, name: str) -> BufferArg:
        return self.target.output_matrix if name == "lm_head" else self.target.weights[name]

    @property
    def verified_rows(self) -> Rows:
        """The rows that the target verifies."""
        return Rows(self.round_tokens, self.round_positions, self.round_slots, self.round_length, (self.round_starts,))

    @property
    def block_rows(self) -> Rows:
        """The rows of the draft's block: the anchor, and a mask for each draft but the last."""
        return Rows(self.block_ids, self.round_positions, self.round_slots, self.block_length, (self.block_starts,))

    @property
    def carries(self) -> tuple[BufferArg, ...]:
        """What `begin_spec` and, but for the rows' starts, `accept` write, in their order."""
        return (
            *(self.round_tokens, self.round_positions, self.round_slots, self.round_length, self.round_starts),
            *(self.block_ids, self.block_length, self.block_starts, self.feature_positions, self.feature_slots),
            *(self.accepted, self.round_count, self.target.step_position, self.target.token_ring),
        )

    def keys_and_values_matrix(self, layer: int) -> BufferArg:
        """The rows of a layer's qkv projection that make keys and values."""
        return self.weight(layer, "qkv_proj").at(self.config.q_size * self.config.hidden * BF16_BYTES)

    def round_token(self, row: int) -> BufferArg:
        """The token of a row of the round, of the only sequence."""
        return self.round_tokens.at(row * I64_BYTES)

    def draft_logits(self, row: int) -> BufferArg:
        """The logits of a row of the block."""
        return self.logits.at(row * self.config.vocabulary * F32_BYTES)
