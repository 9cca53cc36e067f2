"""A target's layers with features taken on the way: what the draft sees of each token."""

from __future__ import annotations

from collections.abc import Mapping

from kern.manifest.builder import ProgramBuilder
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
        _tap(self.p, self.draft, layer - 1, "matmul_f32", "matmul_acc_f32")


class TappedFusedLayers(FusedLayers):
    """The same of a round's rows."""

    def __init__(self, p: ProgramBuilder, draft: DraftBuffers, squares: BufferArg) -> None:
        super().__init__(p, draft.target, draft.verified_rows, squares, ROUND)
        self.draft = draft

    def layer(self, layer: int) -> None:
        """A layer, and the tap on its output."""
        super().layer(layer)
        _tap(self.p, self.draft, layer, "hidden_matmul_f32_rows", "hidden_matmul_acc_f32_rows")


def _tap(p: ProgramBuilder, d: DraftBuffers, layer: int, first: str, further: str) -> None:
    """Add a tapped layer's output to the features; the first tap begins the sum."""
    if layer not in d.draft.taps:
        return
    index, hidden, label = d.draft.taps.index(layer), d.config.hidden, f"L{layer}."
    p.dispatch("to_bf16", d.tapped, d.target.residual, hidden, label=f"{label}tap")
    matrix = d.weights[f"fc.{index}"]
    kernel = further if index else first
    p.dispatch(kernel, d.features, d.tapped, matrix, d.tokens, hidden, hidden, label=f"{label}features")
