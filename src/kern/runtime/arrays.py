"""Numpy arrays that are copied from device memory."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kern.device.base import Pending
from kern.manifest.params import DType

Array = NDArray[Any]

NUMPY_DTYPES: Final[dict[DType, np.dtype[Any]]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "fp8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
}


class PendingArray:
    """An array that is being copied to the host."""

    def __init__(self, pending: Pending, dtype: DType, shape: tuple[int, ...]) -> None:
        self._pending = pending
        self._dtype = NUMPY_DTYPES[dtype]
        self._shape = shape

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._pending.done()

    def wait(self) -> Array:
        """The array, once it has arrived. Raises LaunchError if a launch that produces it failed."""
        return np.frombuffer(self._pending.wait(), self._dtype).reshape(self._shape)
