"""The sizes that CUDA kernels are compiled for: a transformer's, and those of a round of speculation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kern.manifest.errors import KernError, variant

CHUNK: Final = 32
"""Elements of its inner dimension that one step of a matrix-vector kernel takes: widths are multiples of it."""
HEAD_DIMS: Final = (64, 128)
MAX_GROUP: Final = 16
"""The most query heads per key head: the rows of a tensor-core product."""
MAX_SEQUENCES: Final = 256
"""The most sequences that decode at once: each has a thread where attention divides its work."""
MAX_ROUND_ROWS: Final = 32
"""The most rows of a round: attention has a lane for each."""


UnsupportedSizes = variant(KernError, "unsupported-sizes", "The CUDA kernels do not support a size.")


@dataclass(frozen=True, slots=True)
class Sizes:
    """A transformer's sizes in elements. `sequences` is how many decode at once, at most."""

    hidden: int
    ffn: int
    q_heads: int
    kv_heads: int
    head_dim: int
    sequences: int = 1

    @property
    def q_size(self) -> int:
        """Width of all query heads."""
        return self.q_heads * self.head_dim

    def __post_init__(self) -> None:
        """Raises UnsupportedSizes."""
        if self.head_dim not in HEAD_DIMS:
            raise UnsupportedSizes(
                f"head_dim is {self.head_dim}", f"the CUDA kernels support {' and '.join(map(str, HEAD_DIMS))}"
            )
        if self.q_heads > MAX_GROUP * self.kv_heads:
            raise UnsupportedSizes(
                f"{self.q_heads} query heads share {self.kv_heads} key heads",
                f"the CUDA kernels support up to {MAX_GROUP} query heads per key head",
            )
        if self.q_heads % self.kv_heads:
            raise UnsupportedSizes(
                f"{self.q_heads} query heads cannot share {self.kv_heads} key heads evenly",
                "the CUDA kernels support the same number of query heads for each key head",
            )
        if self.sequences > MAX_SEQUENCES:
            raise UnsupportedSizes(
                f"{self.sequences} sequences decode at once", f"the CUDA kernels support up to {MAX_SEQUENCES}"
            )
        for name in ("hidden", "ffn", "q_size"):
            if getattr(self, name) % CHUNK:
                raise UnsupportedSizes(
                    f"{name} is {getattr(self, name)}", f"the CUDA kernels support multiples of {CHUNK}"
                )


@dataclass(frozen=True, slots=True)
class Round:
    """A round of speculation: its rows, those of a draft's block and the anchor; the draft's ffn, its Markov rank."""

    rows: int
    ffn: int
    rank: int

    def __post_init__(self) -> None:
        """Raises UnsupportedSizes."""
        if self.rows > MAX_ROUND_ROWS:
            raise UnsupportedSizes(
                f"a round of speculation has {self.rows} rows", f"the CUDA kernels support up to {MAX_ROUND_ROWS}"
            )
        if self.ffn % CHUNK:
            raise UnsupportedSizes(f"the draft's ffn is {self.ffn}", f"the CUDA kernels support multiples of {CHUNK}")
