"""The part of cublasLt's C API that matrix products need, through ctypes.

nvmath-python has bindings of the same calls; importing them takes a second, since its package imports the modules of
all its libraries.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_int64, c_size_t, c_uint64, c_void_p
from functools import cache
from typing import Any, Final

from cuda import pathfinder

from kern.device.base import CudaError, DeviceUnavailable
from kern.device.cuda.context import SEE_DRIVER
from kern.manifest.errors import install_hint

BF16: Final = 14  # cudaDataType_t: CUDA_R_16BF
F32: Final = 0  # cudaDataType_t: CUDA_R_32F
COMPUTE_F32: Final = 68  # cublasComputeType_t: CUBLAS_COMPUTE_32F
TRANSPOSED: Final = 1  # cublasOperation_t: CUBLAS_OP_T
DESCRIPTION_TRANSPOSES_A: Final = 3  # cublasLtMatmulDescAttributes_t: CUBLASLT_MATMUL_DESC_TRANSA

# cublasLtMatmulPreferenceAttributes_t: CUBLASLT_MATMUL_PREF_…
PREFERENCE_WORKSPACE_BYTES: Final = 1
PREFERENCE_REDUCTION_SCHEMES: Final = 3
PREFERENCE_ALIGNMENTS: Final = (5, 6, 7, 8)
"""Least alignments in bytes of A, B, C and D."""

REDUCED_IN_COMPUTE_TYPE: Final = 2  # cublasLtReductionScheme_t: CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE

_ARGUMENTS: Final = {
    "cublasLtCreate": (c_void_p,),
    "cublasLtDestroy": (c_void_p,),
    "cublasLtMatmulDescCreate": (c_void_p, c_int, c_int),
    "cublasLtMatmulDescSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulDescDestroy": (c_void_p,),
    "cublasLtMatrixLayoutCreate": (c_void_p, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutDestroy": (c_void_p,),
    "cublasLtMatmulPreferenceCreate": (c_void_p,),
    "cublasLtMatmulPreferenceSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulPreferenceDestroy": (c_void_p,),
    "cublasLtMatmulAlgoGetHeuristic": (*[c_void_p] * 7, c_int, c_void_p, c_void_p),
    "cublasLtMatmulAlgoCheck": (c_void_p,) * 8,
}


def call(name: str, *arguments: Any) -> None:
    """Make the call. Raises CudaError with its name and cublasLt's reason."""
    status = getattr(_library(), name)(*arguments)
    if status:
        raise CudaError(f"{name} failed: {described(status)}", SEE_DRIVER)


def create(name: str, *arguments: Any) -> int:
    """The object that a call returns through its first parameter. Raises CudaError."""
    handle = c_void_p()
    call(name, ctypes.byref(handle), *arguments)
    return handle.value or 0


def matmul() -> Callable[..., int]:
    """cublasLtMatmul; it converts no argument, each must be a ctypes object of the parameter's type."""
    return _library()["cublasLtMatmul"]


def version() -> int:
    """The library's version, `130100` for 13.1. Raises DeviceUnavailable where it is not installed."""
    return int(_library().cublasLtGetVersion())


def described(status: int) -> str:
    """A cublasStatus_t's name and text."""
    library = _library()
    name, text = library.cublasLtGetStatusName(status), library.cublasLtGetStatusString(status)
    return f"{name.decode()} ({text.decode()})"


@cache
def _library() -> ctypes.CDLL:
    try:
        path = pathfinder.load_nvidia_dynamic_lib("cublasLt").abs_path
    except RuntimeError as error:  # raised by the finder where the library is not found
        raise DeviceUnavailable("cublasLt is not installed", install_hint("cuda")) from error
    library = ctypes.CDLL(path)
    for name, types in _ARGUMENTS.items():
        getattr(library, name).argtypes = types
    library.cublasLtGetVersion.restype = c_size_t
    for name in ("cublasLtGetStatusName", "cublasLtGetStatusString"):
        getattr(library, name).restype = ctypes.c_char_p
        getattr(library, name).argtypes = (c_int,)
    return library
