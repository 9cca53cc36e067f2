"""Arrays in memory: how many bytes they take, and where they may start."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from kern.manifest.params import DTYPE_BYTES, DType

ALIGNMENT: Final = 256
"""Every buffer, scratch and state starts at a multiple of this many bytes at least."""


def array_bytes(dtype: DType, dimensions: Iterable[int]) -> int:
    """Bytes of a dense array."""
    return DTYPE_BYTES[dtype] * math.prod(dimensions)


def round_up(size: int, multiple: int = ALIGNMENT) -> int:
    """The least multiple of `multiple` that is not below `size`."""
    return -(-size // multiple) * multiple
