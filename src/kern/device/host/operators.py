"""The host's built-in operators: matrix products in numpy, portable and not fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isqrt
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kern.device.base import DeviceError
from kern.device.host.memory import view

_BLOCK_BYTES: Final = 4 << 20
"""Most bytes of one temporary; three live at a time (rows of A, rows of W, their product)."""

Array = NDArray[Any]


def bind(name: str, arguments: Sequence[int]) -> Callable[[], None]:
    """A call of the operator `name` with these addresses and scalars. Raises DeviceError for an unknown name.

    Its temporaries (about 16 MB at most) live while it runs.
    """
    if name not in _OPERATORS:
        raise DeviceError(f"unknown operator {name!r}", f"the host device has: {', '.join(sorted(_OPERATORS))}")
    return partial(_OPERATORS[name], *arguments)


def _product(dtype: Any, accumulate: bool, c: int, a: int, w: int, m: int, n: int, k: int) -> None:
    """Row-major C[m,n] (+)= A[m,k] · W[n,k]ᵀ: A and W bf16, C `dtype`, sums in float32, rounded once."""
    left, right = _array(a, (m, k), ml_dtypes.bfloat16), _array(w, (n, k), ml_dtypes.bfloat16)
    out = _array(c, (m, n), dtype)
    rows = max(1, min(_BLOCK_BYTES // (4 * max(k, 1)), isqrt(_BLOCK_BYTES // 4)))
    with np.errstate(all="ignore"):
        for i in range(0, m, rows):
            block = left[i : i + rows].astype(np.float32)
            for j in range(0, n, rows):
                product = block @ right[j : j + rows].astype(np.float32).T
                target = out[i : i + rows, j : j + rows]
                target[...] = target.astype(np.float32) + product if accumulate else product


def _array(address: int, shape: tuple[int, int], dtype: Any) -> Array:
    """A view of memory, of a shape that was checked."""
    size = shape[0] * shape[1] * np.dtype(dtype).itemsize
    return np.frombuffer(view(address, size), dtype).reshape(shape)


_OPERATORS: Final[dict[str, Callable[..., None]]] = {
    "cublaslt_bf16_tn": partial(_product, ml_dtypes.bfloat16, False),
    "cublaslt_bf16_tn_acc": partial(_product, ml_dtypes.bfloat16, True),
    "cublaslt_bf16_tn_f32": partial(_product, np.float32, False),
    "cublaslt_bf16_tn_f32_acc": partial(_product, np.float32, True),
}
