"""Numpy arrays on their way to and from device memory."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kern.device.base import Pending
from kern.manifest.errors import KernError
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


class WrongDType(KernError):
    """An array's dtype is not its buffer's."""

    code: ClassVar[str] = "dtype"
    exit_code: ClassVar[int] = 2


class TooLong(KernError):
    """An array has more bytes than its buffer."""

    code: ClassVar[str] = "too-long"
    exit_code: ClassVar[int] = 2


def dense_bytes(name: str, array: Array, dtype: DType, room: int) -> memoryview:
    """The row-major bytes of an array for buffer `name` of `room` bytes. Raises WrongDType or TooLong."""
    expected = NUMPY_DTYPES[dtype]
    if array.dtype != expected:
        raise WrongDType(f"buffer {name!r} is {dtype}, the array is {array.dtype}", f"give an array of {expected}")
    if array.nbytes > room:
        raise TooLong(
            f"buffer {name!r} holds {room // expected.itemsize} values, the array has {array.size}",
            "write no more than the buffer holds at its symbols' bounds",
        )
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


class PendingArray:
    """An array on its way to the host."""

    def __init__(self, pending: Pending, dtype: DType, shape: tuple[int, ...]) -> None:
        self._pending = pending
        self._dtype = NUMPY_DTYPES[dtype]
        self._shape = shape

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._pending.done()

    def wait(self) -> Array:
        """The array, once it is there. Raises LaunchError if what was to produce it failed."""
        return np.frombuffer(self._pending.wait(), self._dtype).reshape(self._shape)
