"""Arrays in .npy files as values of buffers. numpy has neither bf16 nor fp8: a file has their bits."""

from __future__ import annotations

import os
import warnings
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.lib import format as npy

from kern.cli.errors import UsageError
from kern.files.regular_file import open_regular
from kern.manifest.errors import variant
from kern.manifest.params import DType
from kern.runtime.arrays import NUMPY_DTYPES, Array
from kern.runtime.conversion import WrongDType

_BITS: Final[dict[DType, np.dtype[Any]]] = {"bf16": np.dtype(np.uint16), "fp8e4m3": np.dtype(np.uint8)}
_HEADERS: Final = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_REFUSED: Final = (ValueError, TypeError, SyntaxError, TokenError, OverflowError, RecursionError, MemoryError, EOFError)
"""What numpy raises for what is not a header."""


UnreadableArray = variant(UsageError, "unreadable-array", "A file is not an .npy array that can be read.")


def read_array(path: Path) -> Array:
    """The array in an .npy file; pickles are refused. Raises UnreadableArray."""
    try:
        with open(open_regular(path), "rb") as file:
            return _array(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise UnreadableArray(f"{path} cannot be read: {error.strerror or error}", "name an .npy file") from error
    except _REFUSED as error:
        reason = str(error.args[0]).partition("\n")[0][:200] if error.args else type(error).__name__
        raise UnreadableArray(f"{path} is not an .npy file of numbers: {reason}", "write it with numpy.save") from error


def _array(file: BinaryIO, size: int) -> Array:
    version = npy.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version[0]}.{version[1]} is for arrays of records")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about files of Python 2, which are read anyway
        shape, columns_first, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    there, wanted = size - file.tell(), prod(shape) * dtype.itemsize
    if there != wanted:
        raise ValueError(f"it has {there} bytes of values, but an array of {list(shape)} {dtype} has {wanted}")
    return np.frombuffer(file.read(wanted), dtype).reshape(shape, order="F" if columns_first else "C")


def as_values(name: str, path: Path, array: Array, dtype: DType) -> Array:
    """An array from a file as the values of buffer `name`: bits are reinterpreted, other dtypes are unchanged.

    For bf16 and fp8e4m3 these are the bits as numpy.save writes an array of ml_dtypes, or as uint16 and uint8.
    Raises WrongDType.
    """
    bits = _BITS.get(dtype)
    if bits is None:
        return array
    saved = np.dtype(f"V{bits.itemsize}")
    if array.dtype not in (bits, bits.newbyteorder(), saved):
        raise WrongDType(
            f"buffer {name!r} is {dtype}, but the array in {path} is {array.dtype}",
            f"save an array of {NUMPY_DTYPES[dtype]}, or its bits as {bits}",
        )
    native = array if array.dtype == saved else array.astype(bits)
    return np.ascontiguousarray(native).view(NUMPY_DTYPES[dtype]).reshape(array.shape)


def write_array(file: BinaryIO, array: Array, dtype: DType) -> None:
    """Write a buffer's values: bf16 and fp8e4m3 as their bits."""
    bits = _BITS.get(dtype)
    npy.write_array(file, array if bits is None else array.view(bits), allow_pickle=False)
