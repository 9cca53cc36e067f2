"""The programs of speculation: the draft's block, the target's verification, acceptance, and the draft's state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from kern.checkpoints.config import TransformerConfig, UnsupportedModel
from kern.contracts.text import WIDE
from kern.manifest.builder import Argument, ManifestBuilder, ProgramBuilder
from kern.manifest.types import Kernel
from kern.models.buffers import BF16_BYTES, RING, Buffers, Names
from kern.models.fused_layers import (
    BLOCK,
    BLOCK_WIDE,
    ROUND,
    ROUND_WIDE,
    FusedEntries,
    fused_layers,
    has_wide_products,
)
from kern.models.layers import LayerTable, Taps, op, plain_layers, write, write_decoder
from kern.models.speculation.buffers import DraftBuffers
from kern.models.speculation.draft import Draft
from kern.models.speculation.taps import fused_taps, plain_taps

MAX_SPECULATED: Final = 8
"""The most sequences of a round: the chain of drafts has a row of a tensor-core product for each."""


class Speculation:
    """Writes a draft's programs into its target's manifest.

    Where kernels fuse a product with what is around it, they read the weights once for each eight rows, and the
    programs that run the layers exist twice: on those for the rows of one sequence, and, with names that end in WIDE,
    on products for many rows, for more sequences. So a round of one sequence has the same launches in any folder.
    """

    def __init__(
        self, builder: ManifestBuilder, kernels: Mapping[str, Kernel], target: Buffers, draft: Draft, sequences: int
    ) -> None:
        """Raises UnsupportedModel for more than MAX_SPECULATED sequences."""
        if sequences > MAX_SPECULATED:
            raise UnsupportedModel(
                f"a draft serves up to {MAX_SPECULATED} sequences at once, not {sequences}",
                f"build for {MAX_SPECULATED} sequences or fewer",
            )
        self.builder, self.kernels, self.target, self.sequences = builder, kernels, target, sequences
        self.buffers = DraftBuffers(builder, target, draft, sequences)
        self.chain = {} if "markov_argmax" in kernels else self.buffers.chain(builder)
        self.fused = target.squares is not None

    def tapped(self, rows: Names, *, fused: bool = False, wide: bool = False) -> tuple[Names, Taps]:
        """The names and the taps of a program of the target whose tokens the draft needs to know.

        `fused`: its layers are, and `wide`: they are those of many rows.
        """
        layers = self.buffers.draft.taps
        taps = fused_taps(layers, wide=wide) if fused else plain_taps(layers)
        return {**rows, **self.buffers.tap_names}, taps

    def programs(self) -> None:
        """All programs that the target alone does not have."""
        widths = tuple(self._widths())
        self.begin_spec()
        for program in (self.draft, self.verify):
            for wide, seqs in widths:
                program(wide, seqs)
        self.accept()
        for wide, seqs in widths:
            self.draft_precompute(wide, seqs)

    def _widths(self) -> Iterator[tuple[bool, tuple[int, int]]]:
        """Of the programs that run layers: whether they are for many rows, and for how many sequences."""
        if not self.fused:
            yield False, (1, self.sequences)
            return
        yield False, (1, 1)
        if self.sequences > 1:
            yield True, (2, self.sequences)

    def begin_spec(self) -> None:
        """Take the inputs as the anchors of the first round."""
        p = self._program("begin_spec", 1, (1, self.sequences))
        write(p, self.buffers.names, op("begin_spec", "begin_spec", ring=RING))

    def draft(self, wide: bool, seqs: tuple[int, int]) -> None:
        """The rows of a round; the block's logits in one pass, then its tokens, each with the one before it known."""
        b = self.buffers
        p = self._program("draft", b.block, seqs, wide)
        write(p, b.names, op("lay_round", "lay_round"))
        if self.fused:
            table = self._many(b.config, BLOCK_WIDE) if wide else fused_layers(b.config, BLOCK)
        else:
            table = plain_layers(b.config, self.kernels, "attention_full")
        write_decoder(p, b, b.block_rows, table)
        write(p, {**b.names, **b.block_rows}, *table.head)
        steps = [op("markov", "markov_argmax", w1="markov_w1", w2="markov_w2")]
        if self.chain:
            sizes = {"m": "seqs", "n": "vocabulary", "k": "rank"}
            steps = [
                op(
                    "before",
                    "gather_bf16",
                    y="markov_row",
                    table="markov_w1",
                    ids="before",
                    width="rank",
                    stride="rows",
                ),
                op("markov", "matmul_f32", y="markov_delta", x="markov_row", w="markov_w2", **sizes),
                op("argmax", "add_argmax", delta="markov_delta"),
            ]
        for row in range(b.block):
            write(p, {**b.names, **self.chain, **b.row_names(row)}, *steps, prefix=f"draft {row + 1}.")

    def verify(self, wide: bool, seqs: tuple[int, int]) -> None:
        """What the target predicts after each row of the round, and the rows' features."""
        b, c = self.buffers, self.target.config
        p = self._program("verify", b.rows, seqs, wide)
        if self.fused:
            table = self._many(c, ROUND_WIDE) if wide else fused_layers(c, ROUND)
        else:
            table = plain_layers(c, self.kernels, "attention_prefill")
        rows, taps = self.tapped(b.verified_rows, fused=not table.norm, wide=wide)
        write_decoder(p, self.target, rows, table, taps)
        write(p, {**self.target.names, **rows}, *table.head)
        write(p, b.names, op("argmax", "argmax_rows", next="predicted"))

    def accept(self) -> None:
        """From what was drafted and predicted to the next anchors; rows that were wrong lose their slots."""
        p = self._program("accept", self.buffers.rows, (1, self.sequences))
        write(p, self.buffers.names, op("accept", "accept", ring=RING))

    def draft_precompute(self, wide: bool, seqs: tuple[int, int]) -> None:
        """Add the rows that were accepted to the draft's state."""
        p = self._program("draft_precompute", self.buffers.rows, seqs, wide)
        rows = {"positions": self.buffers.round_positions, "slots": self.buffers.round_slots}
        self.precompute(p, rows, "hidden_matmul_rows" if self.fused and not wide else "matmul")

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

    def _many(self, config: TransformerConfig, entries: FusedEntries) -> LayerTable:
        """Layers of the rows of several sequences: products of many rows, and attention that keeps keys and values."""
        if has_wide_products(self.kernels) and config.ffn == self.target.config.ffn:
            return fused_layers(config, entries)
        plain = plain_layers(config, self.kernels, "attention_prefill")
        attention = ("norm_append_attention" if config.qk_norm else "append_attention") + entries.attention
        return replace(
            plain,
            to_cache=plain.to_cache[:2],
            from_cache=(op("attention", attention, o="attended"), *plain.from_cache[1:]),
        )

    def _program(self, name: str, rows: int, seqs: tuple[int, int], wide: bool = False) -> ProgramBuilder:
        low, high = seqs
        return self.builder.program(name + WIDE * wide, tokens=(low * rows, high * rows), seqs=seqs)
