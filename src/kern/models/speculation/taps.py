"""The layers of a target that its draft taps: the output of each adds its share to `features`, what the draft sees.

`features` = fc · (the tapped outputs side by side), as a sum of products with fc's columns for each tap.
"""

from __future__ import annotations

from collections.abc import Sequence

from kern.models.layers import Operation, Taps, op


def plain_taps(layers: Sequence[int]) -> Taps:
    """The taps of plain layers: the output of a layer is complete when the norm of the next has added it."""
    return {(layer + 1, "input_norm"): _rounded(layer, tap) for tap, layer in enumerate(layers)}


def fused_taps(layers: Sequence[int], *, wide: bool = False) -> Taps:
    """The taps of fused layers; the product that takes the residual stream as it is reads the weights for few rows."""
    return {
        (layer, "down_proj"): _rounded(layer, tap)
        if wide
        else (_features(layer, "residual_matmul_acc_f32" if tap else "residual_matmul_f32", "residual", tap),)
        for tap, layer in enumerate(layers)
    }


def _rounded(layer: int, tap: int) -> tuple[Operation, ...]:
    return (
        op(f"L{layer}.tap", "to_bf16", y="tapped", x="residual"),
        _features(layer, "matmul_acc_f32" if tap else "matmul_f32", "tapped", tap),
    )


def _features(layer: int, kernel: str, x: str, tap: int) -> Operation:
    return op(f"L{layer}.features", kernel, y="features", x=x, w=f"fc.{tap}", n="hidden", k="hidden")
