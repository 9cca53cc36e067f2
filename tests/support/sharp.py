"""Random models whose attention is sharp enough for their rotary positions to show in a score."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kern.checkpoints.config import Family, TransformerConfig, parameter_shapes, preset
from kern.checkpoints.random_checkpoint import random_tensor

IDS: list[int] = np.random.default_rng(34).integers(0, 512, size=40).tolist()
"""What is scored."""
_SHARPNESS = 4


@dataclass(frozen=True)
class SharpCheckpoint:
    """The tiny model of a family, with queries and logits that are larger by a power of two."""

    family: Family

    @property
    def config(self) -> TransformerConfig:
        return replace(preset(self.family, "tiny"), max_positions=256, rope_theta=1e4, norm_eps=1e-6)

    def tensor(self, name: str) -> NDArray[Any]:
        tensor = random_tensor(7, name, parameter_shapes(self.config)[name])
        sharp = ("self_attn.q_norm" if self.family == "qwen3" else "q_proj", "model.norm")
        return tensor * np.array(_SHARPNESS, tensor.dtype) if any(part in name for part in sharp) else tensor

    def all(self) -> dict[str, NDArray[Any]]:
        """Every tensor, in f32."""
        return {name: self.tensor(name).astype(np.float32) for name in parameter_shapes(self.config)}
