"""The programs of speculation: the draft's state, its block, the target's verification, and acceptance."""

from __future__ import annotations

from collections.abc import Mapping

from kern.checkpoints.config import UnsupportedModel
from kern.manifest.builder import Argument, ManifestBuilder, ProgramBuilder
from kern.manifest.types import Kernel
from kern.models.buffers import BF16_BYTES, RING, Buffers, Names
from kern.models.fused_layers import BLOCK, ROUND, fused_layers
from kern.models.layers import Taps, op, plain_layers, write, write_decoder
from kern.models.speculation.buffers import DraftBuffers
from kern.models.speculation.draft import Draft
from kern.models.speculation.taps import fused_taps, plain_taps


class Speculation:
    """Writes a draft's programs into its target's manifest.

    They are for one sequence: the rows of the block and of the round begin where the sequence's arrays do.
    """

    def __init__(
        self, builder: ManifestBuilder, kernels: Mapping[str, Kernel], target: Buffers, draft: Draft, sequences: int
    ) -> None:
        """Raises UnsupportedModel for more sequences than one."""
        if sequences != 1:
            raise UnsupportedModel(f"a draft serves one sequence, not {sequences}", "build for one sequence")
        self.builder, self.kernels, self.target = builder, kernels, target
        self.buffers = DraftBuffers(builder, target, draft)
        self.fused = target.squares is not None

    def tapped(self, rows: Names, *, fused: bool = False) -> tuple[Names, Taps]:
        """The names and the taps of a program of the target whose tokens the draft needs to know."""
        layers = self.buffers.draft.taps
        return {**rows, **self.buffers.tap_names}, fused_taps(layers) if fused else plain_taps(layers)

    def programs(self) -> None:
        """All programs that the target alone does not have."""
        self.draft_precompute()
        self.draft()
        self.verify()
        self.accept()
        self.begin_spec()

    def draft_precompute(self) -> None:
        """Add the rows that were accepted in the last round to the draft's state."""
        p = self._program("draft_precompute", self.buffers.rows)
        product = "hidden_matmul_rows" if self.fused else "matmul"
        rows = {"positions": self.buffers.feature_positions, "slots": self.buffers.feature_slots}
        self.precompute(p, rows, product)

    def precompute(self, p: ProgramBuilder, rows: Names, product: str = "matmul") -> None:
        """Keys and values of every layer of the draft, from features; the layers' input norms are not applied."""
        b, c = self.buffers, self.buffers.config
        fused = "norm_rope_cache" if c.qk_norm else "rope_cache"
        separate = (
            *([op("k_norm", "k_head_norm", heads="keys", weight="k_norm")] if c.qk_norm else []),
            op("rope", "k_rope"),
            op("cache_write", "cache_write", k="keys", v="values"),
        )
        names: dict[str, Argument] = {
            **b.names,
            **rows,
            "qkv": b.context_kv,
            "keys": b.context_kv,
            "values": b.context_kv.at(c.kv_size * BF16_BYTES),
            "row_stride": 2 * c.kv_size,
            "q_heads": 0,
        }
        write(p, names, op("draft.hidden_norm", "rms_norm", y="context", x="features", weight="hidden_norm"))
        for layer in range(c.layers):
            of_layer = b.names_of(layer)
            if c.qk_norm:
                of_layer["q_norm"] = of_layer["k_norm"]  # there are no query heads to norm
            write(
                p,
                names | of_layer,
                op("kv_proj", product, y="qkv", x="context", w="kv_proj", n="row_stride", k="hidden"),
                *((op(fused, fused),) if fused in self.kernels else separate),
                prefix=f"draft.L{layer}.",
            )

    def draft(self) -> None:
        """The block's logits in one pass, then its tokens one after another, each with the one before it known."""
        b = self.buffers
        p = self._program("draft", b.block)
        table = fused_layers(b.config, BLOCK) if self.fused else plain_layers(b.config, self.kernels, "attention_full")
        write_decoder(p, b, b.block_rows, table)
        write(p, {**b.names, **b.block_rows}, *table.head)
        names, chain = b.names, [op("markov", "markov_argmax", w1="markov_w1", w2="markov_w2")]
        if "markov_argmax" not in self.kernels:
            names["markov_row"] = self.builder.workspace("markov_row", "bf16", [b.seqs, b.draft.rank])
            sizes = {"m": "seqs", "n": "vocabulary", "k": "rank"}
            chain = [
                op("before", "gather_bf16", y="markov_row", ids="before", table="markov_w1", width="rank"),
                op("markov", "matmul_acc_f32", y="logits", x="markov_row", w="markov_w2", **sizes),
                op("argmax", "argmax"),
            ]
        for row in range(b.block):
            write(p, names | b.row_names(row), *chain, prefix=f"draft {row + 1}.")

    def verify(self) -> None:
        """What the target predicts after each row of the round, and the rows' features."""
        b, c = self.buffers, self.target.config
        p = self._program("verify", b.rows)
        rows, taps = self.tapped(b.verified_rows, fused=self.fused)
        table = fused_layers(c, ROUND) if self.fused else plain_layers(c, self.kernels, "attention_prefill")
        write_decoder(p, self.target, rows, table, taps)
        write(p, {**self.target.names, **rows}, *table.head)
        write(p, b.names, op("argmax", "argmax_rows", next="predicted"))

    def accept(self) -> None:
        """From what was drafted and predicted to the next round's rows."""
        write(
            self._program("accept", self.buffers.rows),
            self.buffers.names,
            op("accept", "accept", step_position="slot_position", ring=RING),
        )

    def begin_spec(self) -> None:
        """Take the inputs as the anchor of the first round."""
        write(
            self._program("begin_spec", 1),
            self.buffers.names,
            op("begin_spec", "begin_spec", step_position="slot_position", ring=RING),
        )

    def _program(self, name: str, tokens: int) -> ProgramBuilder:
        return self.builder.program(name, tokens=(tokens, tokens), seqs=(1, 1))
