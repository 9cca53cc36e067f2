"""Converts a caller's values to an array of a buffer's dtype; a value that would change is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

import numpy as np

from kern.manifest.errors import variant
from kern.manifest.params import DType
from kern.runtime.arrays import NUMPY_DTYPES, Array
from kern.runtime.errors import CallError
from kern.runtime.symbols import as_integer

ArrayLike = Array | Sequence[Any] | np.generic | float
"""What a caller may give as values."""

_REFUSED: Final = (TypeError, ValueError, OverflowError, MemoryError, RecursionError)
"""What numpy raises for nested lists that are not an array."""


WrongDType = variant(CallError, "wrong-dtype", "The values do not have the dtype of the buffer.")
WrongValue = variant(CallError, "wrong-value", "A value does not fit the dtype of the buffer.")


def as_array(name: str, given: object, dtype: DType) -> Array:
    """`given` as an array of `dtype` for buffer `name`.

    An array of that dtype is accepted in any byte order (bf16 and fp8e4m3 are ml_dtypes.bfloat16 and float8_e4m3fn).
    For an integer dtype, arrays and lists of integers are accepted if all are in its range; for f32, lists of floats,
    rounded to the nearest, and of integers that it holds exactly. Raises WrongDType or WrongValue.
    """
    expected = NUMPY_DTYPES[dtype]
    if type(given) is np.ndarray and given.dtype is expected:
        return given
    if isinstance(given, np.ma.MaskedArray):
        raise WrongDType(f"buffer {name!r} is {dtype}, but a masked array was given", "fill it, and give a plain array")
    if isinstance(given, np.ndarray | np.generic):
        return _converted(name, np.asarray(given), dtype)
    if isinstance(given, list | tuple | int | float) and not isinstance(given, bool):
        return _listed(name, given, dtype)
    raise WrongDType(
        f"buffer {name!r} is {dtype}, but a {type(given).__name__} was given", f"give an array of {expected}"
    )


def _converted(name: str, array: Array, dtype: DType) -> Array:
    expected = NUMPY_DTYPES[dtype]
    if array.dtype == expected:
        return array
    native = array.dtype.kind in "iuf" and array.dtype.newbyteorder("=") == expected
    if native or (array.dtype.kind in "iu" and expected.kind in "iu"):
        if array.size and expected.kind in "iu":
            _check_range(name, int(array.min()), int(array.max()), dtype)
        return array.astype(expected)
    raise WrongDType(f"buffer {name!r} is {dtype}, but the array is {array.dtype}", f"give an array of {expected}")


def _listed(name: str, given: object, dtype: DType) -> Array:
    expected = NUMPY_DTYPES[dtype]
    if expected.kind not in "iu" and dtype != "f32":
        raise WrongDType(f"buffer {name!r} is {dtype}, but a list was given", f"give an array of {expected}")
    try:
        objects = np.array(given, dtype=object)
    except _REFUSED as error:
        raise WrongDType(
            f"buffer {name!r} is {dtype}, but the list is not an array: {error}", "nest lists of equal length"
        ) from None
    flat = objects.reshape(-1).tolist()
    made = _integers(name, flat, dtype) if expected.kind in "iu" else _floats(name, flat)
    return made.reshape(objects.shape)


def _integers(name: str, flat: list[Any], dtype: DType) -> Array:
    integers = []
    for index, value in enumerate(flat):
        integer = as_integer(value)
        if integer is None:
            _refuse(name, dtype, index, value, "give integers")
        integers.append(integer)
    if integers:
        _check_range(name, min(integers), max(integers), dtype)
    return np.array(integers, NUMPY_DTYPES[dtype])


def _floats(name: str, flat: list[Any]) -> Array:
    """Floats as the nearest f32; integers unchanged."""
    for index, value in enumerate(flat):
        integer = as_integer(value)
        if integer is None and not isinstance(value, float | np.floating):
            _refuse(name, "f32", index, value, "give floats")
        if not _held(value if integer is None else integer):
            raise WrongValue(
                f"buffer {name!r} is f32, which cannot hold {value!r:.40}, value {index} of the list",
                "give a value that f32 can hold, or convert the array first",
            )
    return np.array([float(value) for value in flat], np.float32)


def _held(value: Any) -> bool:
    """Whether f32 can hold an integer exactly, or a float rounded to the nearest."""
    if isinstance(value, int) and abs(value) >= 2**128:
        return False
    with np.errstate(over="ignore"):
        nearest = np.float32(float(value))
    if isinstance(value, int):
        return bool(np.isfinite(nearest)) and int(nearest) == value
    return bool(np.isfinite(nearest)) or not np.isfinite(value)


def _check_range(name: str, least: int, most: int, dtype: DType) -> None:
    held = np.iinfo(NUMPY_DTYPES[dtype])
    if least < held.min or most > held.max:
        wrong = least if least < held.min else most
        raise WrongValue(
            f"buffer {name!r} is {dtype}, which cannot hold {wrong}", f"give values in {held.min}…{held.max}"
        )


def _refuse(name: str, dtype: DType, index: int, value: object, help: str) -> NoReturn:
    raise WrongDType(
        f"buffer {name!r} is {dtype}, value {index} of the list is a {type(value).__name__}, {value!r:.40}", help
    )
