"""A target's layers with features taken on the way: what the draft sees of each token."""

from __future__ import annotations

from collections.abc import Mapping

from kern.manifest.builder import ProgramBuilder
from kern.manifest.expressions import Sym
from kern.manifest.types import BufferArg, Kernel
from kern.models.buffers import Rows
from kern.models.fused_layers import ROUND, FusedLayers
from kern.models.layers import Attention, Layers
from kern.models.speculation.buffers import DraftBuffers


class TappedLayers(Layers):
    """Writes the target's layers; each tapped layer's output adds its share to `features`.

    `features` = fc · (the tapped outputs side by side), as a sum of products with fc's columns for each tap.
    """

    def __init__(
        self, p: ProgramBuilder, draft: DraftBuffers, kernels: Mapping[str, Kernel], rows: Rows, attention: Attention
    ) -> None:
        super().__init__(p, draft.target, kernels, rows, attention)
        self.draft = draft

    def input_norm(self, layer: int) -> None:
        """The norm whose addition completes the output of the layer before, and the tap on that."""
        super().input_norm(layer)
        d, tap = self.draft, _tap(self.draft, layer - 1)
        if tap is None:
            return
        self.p.dispatch("to_bf16", d.tapped, self.b.residual, self.c.hidden, label=f"L{layer - 1}.tap")
        kernel = "matmul_acc_f32" if tap else "matmul_f32"
        self.p.dispatch(kernel, d.features, d.tapped, *_features(d, tap), label=f"L{layer - 1}.features")


class TappedFusedLayers(FusedLayers):
    """The same of a round's rows."""

    def __init__(self, p: ProgramBuilder, draft: DraftBuffers, squares: BufferArg) -> None:
        super().__init__(p, draft.target, draft.verified_rows, squares, ROUND)
        self.draft = draft

    def layer(self, layer: int) -> None:
        """A layer, and the tap on its output."""
        super().layer(layer)
        d, tap = self.draft, _tap(self.draft, layer)
        if tap is None:
            return
        kernel = "residual_matmul_acc_f32" if tap else "residual_matmul_f32"
        self.p.dispatch(kernel, d.features, self.b.residual, *_features(d, tap), label=f"L{layer}.features")


def _tap(d: DraftBuffers, layer: int) -> int | None:
    """The place among the taps that a layer has; the first begins the sum."""
    return d.draft.taps.index(layer) if layer in d.draft.taps else None


def _features(d: DraftBuffers, tap: int) -> tuple[BufferArg, Sym, int, int]:
    hidden = d.config.hidden
    return d.weights[f"fc.{tap}"], d.tokens, hidden, hidden
