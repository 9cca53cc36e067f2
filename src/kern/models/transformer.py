"""The transformer generator: a config becomes a manifest with programs prefill, decode, score and begin.

With a draft model there are those of speculation too.
"""

from __future__ import annotations

from collections.abc import Mapping

from kern.checkpoints.config import TransformerConfig, UnsupportedModel
from kern.kernels.interfaces import MAX_HEAD_DIM
from kern.manifest.builder import ManifestBuilder, ProgramBuilder
from kern.manifest.types import Kernel, Manifest
from kern.models.buffers import RING, Buffers, Limits, Rows
from kern.models.fused_layers import STEP, FusedLayers, squares_of
from kern.models.layers import Attention, Layers
from kern.models.precision import OWN
from kern.models.speculation.draft import Draft
from kern.models.speculation.programs import Speculation
from kern.models.unfused_layers import BlockLayout, UnfusedBuffers, UnfusedLayers


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

    `model` is its label. `block` says how recorded kernels lay keys and values into a page; None: these are our own.
    `draft` is a draft model to speculate with. Raises UnsupportedModel where the kernels do not take a size.
    """
    if config.head_dim > MAX_HEAD_DIM:
        raise UnsupportedModel(f"head_dim is {config.head_dim}", f"the kernels take up to {MAX_HEAD_DIM}")
    transformer = _Transformer(config, kernels, model, limits or Limits(), block, draft)
    transformer.prefill()
    transformer.decode()
    transformer.score()
    transformer.begin()
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
            self.builder.kernel(name, kernel)
        self.buffers = (
            Buffers(self.builder, config, limits, OWN)
            if block is None
            else UnfusedBuffers(self.builder, config, limits, block)
        )
        self.squares = squares_of(self.builder, kernels, self.buffers.tokens)
        self.speculation = (
            None
            if draft is None
            else Speculation(self.builder, kernels, self.buffers, self.squares, draft, limits.sequences)
        )

    def layers(self, p: ProgramBuilder, rows: Rows, attention: Attention) -> Layers | UnfusedLayers:
        """What writes the layers of a program, an operation a dispatch."""
        if isinstance(self.buffers, UnfusedBuffers):
            return UnfusedLayers(p, self.buffers, rows, attention)
        return Layers(p, self.buffers, self.kernels, rows, attention)

    def prefill(self) -> None:
        """Leave the state of a chunk of tokens, the draft's too, and nothing else.

        What no state depends on is not computed.
        """
        p = self.builder.program("prefill")
        rows, speculation = self.buffers.chunk_rows, self.speculation
        layers = (
            self.layers(p, rows, "attention_prefill")
            if speculation is None
            else speculation.tapped(p, rows, "attention_prefill")
        )
        layers.embedding()
        last = self.config.layers - 1
        for layer in range(last):
            layers.layer(layer)
        layers.keys_and_values(last)
        if speculation is not None:
            speculation.precompute(p, rows.positions, rows.slots)

    def decode(self) -> None:
        """One token a sequence, fed by the step before; chooses the next one greedily."""
        b = self.buffers
        p = self.builder.program("decode", tokens=(1, self.limits.sequences))
        step = (
            self.layers(p, b.step_rows, "attention_decode")
            if self.squares is None
            else FusedLayers(p, b, b.step_rows, self.squares, STEP)
        )
        step.embedding()
        for layer in range(self.config.layers):
            step.layer(layer)
        step.head()
        p.dispatch("argmax", b.next_token, b.logits, self.config.vocabulary, label="argmax")
        p.dispatch("advance", *b.carries, b.next_token, b.block_table, b.seqs, b.pages, RING, label="advance")

    def score(self) -> None:
        """The negative log-likelihood of each row's target."""
        b = self.buffers
        p = self.builder.program("score", tokens=(1, min(self.limits.score_chunk, self.limits.chunk)))
        layers = self.layers(p, b.chunk_rows, "attention_prefill")
        layers.embedding()
        for layer in range(self.config.layers):
            layers.layer(layer)
        layers.head()
        p.dispatch("token_nll", b.nll, b.logits, b.targets, self.config.vocabulary, label="nll")

    def begin(self) -> None:
        """Take the inputs as the step that decode runs next."""
        b = self.buffers
        p = self.builder.program("begin", tokens=(1, self.limits.sequences))
        inputs = b.token_ids, b.positions, b.slot_mapping, b.seq_lens
        p.dispatch("begin", *b.carries, *inputs, b.seqs, RING, label="begin")
