"""The transformer generator: a config becomes a manifest with programs prefill, decode, score and begin.

With a draft model it has those of speculation too.
"""

from __future__ import annotations

from collections.abc import Mapping

from kern.checkpoints.config import TransformerConfig, UnsupportedModel
from kern.kernels.interfaces import INTERFACES, MAX_HEAD_DIM
from kern.manifest.builder import ManifestBuilder
from kern.manifest.types import Kernel, Manifest
from kern.models.buffers import RING, Buffers, Limits
from kern.models.fused_layers import STEP, fused_layers, product_blocks
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
        p = self.builder.program("prefill")
        b, speculation = self.buffers, self.speculation
        rows, taps = (b.chunk_rows, None) if speculation is None else speculation.tapped(b.chunk_rows)
        write_decoder(p, b, rows, self.layers("attention_prefill"), taps, states_only=True)
        if speculation is not None:
            speculation.precompute(p, b.chunk_rows)

    def decode(self) -> None:
        """One token per sequence, fed by the step before; chooses the next one greedily."""
        b = self.buffers
        p = self.builder.program("decode", tokens=(1, self.limits.sequences))
        table = self.layers("attention_decode") if b.squares is None else fused_layers(self.config, STEP)
        write_decoder(p, b, b.step_rows, table)
        write(p, b.names, op("argmax", "argmax", next="next_token"), op("advance", "advance", ring=RING))

    def score(self) -> None:
        """The negative log-likelihood of each row's target."""
        b = self.buffers
        p = self.builder.program("score", tokens=(1, min(self.limits.score_chunk, self.limits.chunk)))
        write_decoder(p, b, b.chunk_rows, self.layers("attention_prefill"))
        write(p, b.names, op("nll", "token_nll"))

    def begin(self) -> None:
        """Take the inputs as the step that decode runs next."""
        p = self.builder.program("begin", tokens=(1, self.limits.sequences))
        write(p, self.buffers.names, op("begin", "begin", ring=RING))
