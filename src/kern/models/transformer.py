"""The transformer generator: a config becomes a manifest with programs that prefill, decode, mix both, and score.

With a draft model it has those of speculation too.
"""

from __future__ import annotations

from collections.abc import Mapping

from kern.checkpoints.config import TransformerConfig, UnsupportedModel
from kern.kernels.interfaces import INTERFACES, MAX_HEAD_DIM
from kern.manifest.builder import ManifestBuilder, ProgramBuilder
from kern.manifest.types import BufferArg, Kernel, Manifest
from kern.models.buffers import RING, SCORE_ROWS, Buffers, Limits, Names
from kern.models.fused_layers import FEW_ROWS, STEP, WIDE, FusedEntries, fused_layers, has_wide_products, product_blocks
from kern.models.layers import Attention, LayerTable, op, plain_layers, write, write_decoder
from kern.models.speculation.draft import Draft
from kern.models.speculation.programs import Speculation
from kern.models.unfused_layers import BlockLayout, UnfusedBuffers, unfused_layers
from kern.models.weights import OWN


def build_manifest(
    config: TransformerConfig,
    kernels: Mapping[str, Kernel],
    *,
    model: str,
    limits: Limits | None = None,
    block: BlockLayout | None = None,
    draft: Draft | None = None,
) -> Manifest:
    """The manifest of a transformer over the entries of `kernels` (see `kern.kernels.interfaces`).

    `model` is its label. `block` is the layout of keys and values in a page, for recorded kernels; None: our own.
    `draft` is a draft model to speculate with. Raises UnsupportedModel for sizes that the kernels do not support.
    """
    if config.head_dim > MAX_HEAD_DIM:
        raise UnsupportedModel(f"head_dim is {config.head_dim}", f"the kernels support up to {MAX_HEAD_DIM}")
    transformer = _Transformer(config, kernels, model, limits or Limits(), block, draft)
    transformer.prefill()
    transformer.begin()
    transformer.decoding()
    transformer.step()
    transformer.score()
    transformer.nll()
    if transformer.speculation is not None:
        transformer.speculation.programs()
    return transformer.builder.build()


class _Transformer:
    """The programs of one transformer."""

    def __init__(
        self,
        config: TransformerConfig,
        kernels: Mapping[str, Kernel],
        model: str,
        limits: Limits,
        block: BlockLayout | None,
        draft: Draft | None,
    ) -> None:
        self.config, self.kernels, self.limits = config, kernels, limits
        self.builder = ManifestBuilder(model)
        for name, kernel in kernels.items():
            self.builder.kernel(name, kernel, INTERFACES[name])
        self.buffers = (
            Buffers(self.builder, config, limits, OWN, product_blocks(kernels))
            if block is None
            else UnfusedBuffers(self.builder, config, limits, block)
        )
        self.speculation = (
            None if draft is None else Speculation(self.builder, kernels, self.buffers, draft, limits.sequences)
        )

    def layers(self, attention: Attention) -> LayerTable:
        """The layers of a program, one dispatch for each operation."""
        if isinstance(self.buffers, UnfusedBuffers):
            return unfused_layers(attention)
        return plain_layers(self.config, self.kernels, attention)

    def prefill(self) -> None:
        """Leave the state of a chunk of tokens, the draft's too, and nothing else.

        What no state depends on is not computed.
        """
        p = self.program("prefill")
        b, speculation = self.buffers, self.speculation
        rows, taps = (b.chunk_rows, None) if speculation is None else speculation.tapped(b.chunk_rows)
        write_decoder(p, b, rows, self.layers("attention_prefill"), taps, states_only=True)
        if speculation is not None:
            speculation.precompute(p, b.chunk_rows)

    def begin(self) -> None:
        """Take the inputs as the last tokens of their slots."""
        p = self.program("begin", self.limits.sequences)
        write(p, self.buffers.names, op("begin", "begin", ring=RING))

    def decoding(self) -> None:
        """One token per sequence, in one program, or in two if there are kernels for many rows."""
        most, fused = self.limits.sequences, self.buffers.squares is not None
        if not (fused and has_wide_products(self.kernels) and most > FEW_ROWS):
            self.decode("decode", most, STEP)
            return
        self.decode("decode", FEW_ROWS, STEP)
        self.decode("decode_wide", most, WIDE)

    def decode(self, name: str, most: int, entries: FusedEntries) -> None:
        """One token per sequence, the last one of its slot; chooses the next one greedily."""
        b, p = self.buffers, self.program(name, most, most)
        table = self.layers("attention_decode") if b.squares is None else fused_layers(self.config, entries)
        write(p, b.names, op("rows", "lay_rows"))
        write_decoder(p, b, b.step_rows, table)
        self.head(p, table, b.step_rows)
        write(p, b.names, op("argmax", "argmax", next="next_token"), op("advance", "advance", ring=RING))

    def step(self) -> None:
        """Tokens of prompts and of decoding in one call; where a sequence has a row for it, chooses the next token."""
        b, p = self.buffers, self.program("step")
        table = self.layers("attention_prefill")
        write(p, b.names, op("ids", "lay_tokens", cu_seqlens="cu_seqlens_q"))
        write_decoder(p, b, b.mixed_rows, table)
        self.gathered_head(p, table, table.normed, b.logits)
        write(p, b.names, op("argmax", "argmax", next="next_token"), op("keep", "keep_tokens", ring=RING))

    def score(self) -> None:
        """Leave what the logits of every token of a chunk are computed from."""
        b, p = self.buffers, self.program("score")
        table = self.layers("attention_prefill")
        write_decoder(p, b, {**b.chunk_rows, table.normed: b.scored}, table)

    def nll(self) -> None:
        """The negative log-likelihood of targets after some tokens of the chunk that `score` was called with."""
        b, p = self.buffers, self.program("nll", seqs=SCORE_ROWS)
        self.gathered_head(p, self.layers("attention_prefill"), "scored", b.scored_logits)
        write(p, b.names, op("nll", "token_nll", logits="scored_logits"))

    def gathered_head(self, p: ProgramBuilder, table: LayerTable, normed: str, logits: BufferArg) -> None:
        """The logits of some rows of `normed`, as the input `logits_rows` says."""
        b = self.buffers
        write(p, b.names, op("logits_rows", "gather_rows", y="gathered", x=normed, rows="logits_rows", width="hidden"))
        self.head(p, table, {table.normed: b.gathered, "logits": logits})

    def head(self, p: ProgramBuilder, table: LayerTable, rows: Names) -> None:
        """The logits of as many rows as the call has sequences."""
        write(p, {**self.buffers.names, **rows, "m": self.buffers.seqs}, *table.head)

    def program(self, name: str, tokens: int | None = None, seqs: int | None = None) -> ProgramBuilder:
        """A program of at most so many tokens and sequences: by default a chunk, and all sequences."""
        return self.builder.program(
            name, tokens=(1, tokens or self.limits.chunk), seqs=(1, seqs or self.limits.sequences)
        )
