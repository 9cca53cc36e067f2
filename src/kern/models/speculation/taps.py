"""A target's layers with features taken on the way: what the draft sees of each token."""

from __future__ import annotations

from collections.abc import Mapping

from kern.manifest.builder import ProgramBuilder
from kern.manifest.types import Kernel
from kern.models.buffers import Rows
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
        if layer - 1 in self.draft.draft.taps:
            self.tap(self.draft.draft.taps.index(layer - 1), f"L{layer - 1}.")

    def tap(self, index: int, label: str) -> None:
        """Add the residual stream's share of the features; the first tap begins the sum."""
        d, hidden = self.draft, self.c.hidden
        self.p.dispatch("to_bf16", d.tapped, self.b.residual, hidden, label=f"{label}tap")
        kernel = "matmul_acc_f32" if index else "matmul_f32"
        matrix = d.weights[f"fc.{index}"]
        self.p.dispatch(kernel, d.features, d.tapped, matrix, d.tokens, hidden, hidden, label=f"{label}features")
