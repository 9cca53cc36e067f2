"""The programs of speculation: the draft's state, its block, the target's verification, and acceptance."""

from __future__ import annotations

from collections.abc import Mapping

from kern.checkpoints.config import UnsupportedModel
from kern.manifest.builder import ManifestBuilder, ProgramBuilder
from kern.manifest.types import BufferArg, Kernel
from kern.models.buffers import RING, Buffers, Rows
from kern.models.fused_layers import BLOCK, FusedLayers
from kern.models.layers import Attention, Layers
from kern.models.speculation.buffers import DraftBuffers
from kern.models.speculation.draft import Draft
from kern.models.speculation.taps import TappedFusedLayers, TappedLayers
from kern.models.weights import ROPE_TABLE


class Speculation:
    """Writes a draft's programs into its target's manifest.

    They are for one sequence: the rows of the block and of the round begin where the sequence's arrays do.
    """

    def __init__(
        self,
        builder: ManifestBuilder,
        kernels: Mapping[str, Kernel],
        target: Buffers,
        squares: BufferArg | None,
        draft: Draft,
        sequences: int,
    ) -> None:
        """`squares` is what FusedLayers needs, for kernels that fuse. Raises UnsupportedModel for more sequences."""
        if sequences != 1:
            raise UnsupportedModel(f"{sequences} sequences are asked for, and a draft serves one", "build for one")
        self.builder, self.kernels, self.target = builder, kernels, target
        self.b, self.squares = DraftBuffers(builder, target, draft), squares

    def tapped(self, p: ProgramBuilder, rows: Rows, attention: Attention) -> TappedLayers:
        """What writes the target's layers of a program whose tokens the draft is to know."""
        return TappedLayers(p, self.b, self.kernels, rows, attention)

    def programs(self) -> None:
        """Everything beside the target's own programs."""
        self.draft_precompute()
        self.draft()
        self.verify()
        self.accept()
        self.begin_spec()

    def draft_precompute(self) -> None:
        """Take the rows that the last round left standing into the draft's state."""
        p = self._program("draft_precompute", self.b.rows)
        product = "matmul" if self.squares is None else "hidden_matmul_rows"
        self.precompute(p, self.b.feature_positions, self.b.feature_slots, product)

    def precompute(self, p: ProgramBuilder, positions: BufferArg, slots: BufferArg, product: str = "matmul") -> None:
        """Keys and values of every layer of the draft, from features: its layers' input norms have no part in it."""
        b, c = self.b, self.b.config
        norm = b.weights["hidden_norm"]
        p.dispatch("rms_norm", b.context, b.features, norm, c.hidden, c.norm_eps, label="draft.hidden_norm")
        for layer in range(c.layers):
            matrix, label = b.keys_and_values_matrix(layer), f"draft.L{layer}."
            sizes = b.tokens, 2 * c.kv_size, c.hidden
            p.dispatch(product, b.context_kv, b.context, matrix, *sizes, label=f"{label}kv_proj")
            self._cache(p, layer, positions, slots)

    def _cache(self, p: ProgramBuilder, layer: int, positions: BufferArg, slots: BufferArg) -> None:
        b, c, label, table = self.b, self.b.config, f"draft.L{layer}.", self.b.weights[ROPE_TABLE]
        pool, width = b.layer_cache(layer), 2 * c.kv_size
        norm = [b.weight(layer, "k_norm")] if c.qk_norm else []
        eps = [c.norm_eps] if c.qk_norm else []
        fused = "norm_rope_cache" if c.qk_norm else "rope_cache"
        if fused in self.kernels:  # of rows that have no query heads
            heads = 0, c.kv_heads, c.head_dim, width, b.page_stride
            p.dispatch(
                fused, b.context_kv, *norm, *norm, positions, table, pool, slots, *heads, *eps, label=f"{label}{fused}"
            )
            return
        for weight in norm:
            p.dispatch("k_head_norm", b.context_kv, weight, c.head_dim, width, *eps, label=f"{label}k_norm")
        p.dispatch("k_rope", b.context_kv, positions, table, c.head_dim, width, label=f"{label}rope")
        keys, values = b.context_kv, b.context_kv.at(c.kv_size * 2)
        sizes = c.kv_heads, c.head_dim, width, b.page_stride
        p.dispatch("cache_write", keys, values, pool, slots, *sizes, label=f"{label}cache_write")

    def draft(self) -> None:
        """The block's logits in one pass, then its tokens one after another, each with the one before it known."""
        b, c = self.b, self.b.config
        p = self._program("draft", b.block)
        layers = self._layers(p) if self.squares is None else FusedLayers(p, b, b.block_rows, self.squares, BLOCK)
        layers.embedding()
        for layer in range(c.layers):
            layers.layer(layer)
        layers.head()
        if "markov_argmax" in self.kernels:
            self.chain_in_one(p)
        else:
            self.chain(p)

    def chain(self, p: ProgramBuilder) -> None:
        """Each row's logits moved by the token before, and their greatest as the token after."""
        b, c = self.b, self.b.config
        table, matrix, rank = b.weights["markov_w1"], b.weights["markov_w2"], b.draft.rank
        before = self.builder.workspace("markov_row", "bf16", [b.seqs, rank])
        for row in range(b.block):
            logits, label = b.draft_logits(row), f"draft {row + 1}."
            p.dispatch("gather_bf16", before, b.round_token(row), table, rank, label=f"{label}before")
            p.dispatch("matmul_acc_f32", logits, before, matrix, b.seqs, c.vocabulary, rank, label=f"{label}markov")
            p.dispatch("argmax", b.round_token(row + 1), logits, c.vocabulary, label=f"{label}argmax")

    def chain_in_one(self, p: ProgramBuilder) -> None:
        """The same, each row by one kernel."""
        b, weights = self.b, (self.b.weights["markov_w1"], self.b.weights["markov_w2"])
        for row in range(b.block):
            before, after, label = b.round_token(row), b.round_token(row + 1), f"draft {row + 1}.markov"
            sizes = b.config.vocabulary, b.draft.rank
            p.dispatch("markov_argmax", after, b.draft_logits(row), before, *weights, *sizes, label=label)

    def _layers(self, p: ProgramBuilder) -> Layers:
        return Layers(p, self.b, self.kernels, self.b.block_rows, "attention_full")

    def verify(self) -> None:
        """What the target says after each row of the round, and the rows' features."""
        b, c = self.b, self.target.config
        p = self._program("verify", b.rows)
        layers = (
            self.tapped(p, b.verified_rows, "attention_prefill")
            if self.squares is None
            else TappedFusedLayers(p, b, self.squares)
        )
        layers.embedding()
        for layer in range(c.layers):
            layers.layer(layer)
        layers.head()
        p.dispatch("argmax_rows", b.predicted, self.target.logits, c.vocabulary, label="argmax")

    def accept(self) -> None:
        """From what was drafted and predicted to the next round's rows."""
        b = self.b
        p = self._program("accept", b.rows)
        carries = [carry for carry in b.carries if carry not in (b.round_starts, b.block_starts)]
        sizes = b.seqs, b.pages, RING, b.block
        p.dispatch("accept", *carries, b.predicted, b.block_table, *sizes, label="accept")

    def begin_spec(self) -> None:
        """Take the inputs as the anchor of the first round."""
        b, t = self.b, self.target
        p = self._program("begin_spec", 1)
        sizes = b.seqs, b.pages, RING, b.block, b.draft.mask
        p.dispatch("begin_spec", *b.carries, t.token_ids, t.positions, b.block_table, *sizes, label="begin_spec")

    def _program(self, name: str, tokens: int) -> ProgramBuilder:
        return self.builder.program(name, tokens=(tokens, tokens))
