"""Arrays in memory: their size in bytes, and their alignment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kern.manifest.expressions import INT_LIMIT
from kern.manifest.params import DTYPE_BYTES, DType

ALIGNMENT: Final = 256
"""Every buffer, scratch and state starts at a multiple of this many bytes at least."""


def array_bytes(dtype: DType, dimensions: Iterable[int]) -> int:
    """Bytes of a dense array; from 2⁶³ on, some number that is at least that."""
    size = DTYPE_BYTES[dtype]
    for dimension in dimensions:
        size *= dimension
        if size >= INT_LIMIT:
            break  # a product of thousands of large numbers takes long
    return size


def round_up(size: int, multiple: int = ALIGNMENT) -> int:
    """The least multiple of `multiple` that is not below `size`."""
    return -(-size // multiple) * multiple
