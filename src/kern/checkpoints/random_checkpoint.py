"""Random weights of a known shape, for benchmarks and for comparing implementations."""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from statistics import NormalDist
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kern.checkpoints.checkpoint import CheckpointError, StoredTensor, TextSource
from kern.checkpoints.config import Shape, TransformerConfig, parameter_shapes

_BLOCK: Final = 1 << 22
"""Elements drawn at once."""


@cache
def _quantiles() -> NDArray[np.float32]:
    """65536 equally likely values of the standard normal distribution."""
    normal = NormalDist()
    return np.array([normal.inv_cdf((i + 0.5) / 65536) for i in range(65536)], dtype=np.float32)


def random_tensor(seed: int, name: str, shape: Shape) -> NDArray[Any]:
    """A tensor in bf16 that depends only on `seed` and `name`, not on the number of threads.

    Matrices are normal with variance 1 / inputs, so that activations keep their scale from layer to layer; norm
    weights are normal around 1, so that a missing one shows.
    """
    mean, deviation = (1.0, 0.1) if len(shape) == 1 else (0.0, shape[-1] ** -0.5)
    values = (_quantiles() * np.float32(deviation) + np.float32(mean)).astype(ml_dtypes.bfloat16)
    flat = np.empty(int(np.prod(shape)), dtype=ml_dtypes.bfloat16)

    def fill(block: int) -> None:
        # Looking up 16 random bits in a table is several times faster than drawing a normal number.
        bits = np.random.Generator(np.random.SFC64([seed, zlib.crc32(name.encode()), block]))
        part = flat[block * _BLOCK : (block + 1) * _BLOCK]
        np.take(values, bits.integers(0, 65536, size=part.size, dtype=np.uint16), out=part, mode="clip")

    with ThreadPoolExecutor() as threads:
        list(threads.map(fill, range(-(-flat.size // _BLOCK))))
    return flat.reshape(shape)


@dataclass(frozen=True)
class RandomCheckpoint:
    """A model of this config with tensors of `random_tensor`."""

    config: TransformerConfig
    seed: int
    text: TextSource = field(default_factory=TextSource)
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def tensors(self) -> dict[str, StoredTensor]:
        """All parameters of the config."""
        shapes = parameter_shapes(self.config)
        return {name: StoredTensor(name, shape, "bf16", readable=True) for name, shape in shapes.items()}

    def tensor(self, name: str) -> NDArray[Any]:
        """The tensor `name` in bf16. Raises CheckpointError for an unknown name."""
        shape = parameter_shapes(self.config).get(name)
        if shape is None:
            raise CheckpointError(f"a model of family {self.config.family} has no tensor {name}")
        return random_tensor(self.seed, name, shape)
