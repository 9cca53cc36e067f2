"""The GPU's built-in operators: cublasLt's matrix products, bound to addresses, shape and algorithm."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from nvmath.bindings import cublasLt

from kern.device.base import DeviceError, DeviceUnavailable
from kern.device.cuda.algorithms import WORKSPACE_BYTES, AlgorithmCache, Key, alignment
from kern.device.cuda.context import Context, CudaError
from kern.device.cuda.launch import CudaOperator
from kern.device.cuda.memory import CudaMemory
from kern.device.cuda.tuning import Problem, fastest, is_usable, warm_up

_BF16: Final = 14  # cudaDataType_t: CUDA_R_16BF
_F32: Final = 0  # cudaDataType_t: CUDA_R_32F
_COMPUTE_F32: Final = 68  # cublasComputeType_t: CUBLAS_COMPUTE_32F
_TRANSPOSED: Final = 1  # cublasOperation_t: CUBLAS_OP_T


@dataclass(frozen=True, slots=True)
class _Variant:
    dtype: int
    accumulates: bool

    @property
    def element(self) -> int:
        return 4 if self.dtype == _F32 else 2


_VARIANTS: Final = {
    "cublaslt_bf16_tn": _Variant(_BF16, False),
    "cublaslt_bf16_tn_acc": _Variant(_BF16, True),
    "cublaslt_bf16_tn_f32": _Variant(_F32, False),
    "cublaslt_bf16_tn_f32_acc": _Variant(_F32, True),
}


class Products:
    """cublasLt on one GPU: its handle, 32 MiB of workspace, descriptors, and the algorithm of each shape.

    With `tune`, algorithms in the user's cache are not used but chosen again, once a shape.
    """

    def __init__(self, context: Context, *, tune: bool) -> None:
        """Raises DeviceUnavailable, CudaError, OutOfMemory."""
        self._context = context
        self._cache = AlgorithmCache(context.name(), _version())
        self._tune = tune
        self._chosen: dict[Key, ctypes.Array[Any]] = {}
        self._layouts: dict[tuple[int, int, int], int] = {}
        self._scalars = (ctypes.c_float * 2)(0.0, 1.0)
        self._workspace = CudaMemory(context, WORKSPACE_BYTES)
        with context:
            self._handle = called(cublasLt.create)
            self._description = called(cublasLt.matmul_desc_create, _COMPUTE_F32, _F32)
            self._set_transposed()

    def bind(self, name: str, arguments: Sequence[int]) -> CudaOperator:
        """The operator NAME: row-major C[m,n] (+)= A[m,k] · W[n,k]ᵀ from addresses C, A, W and m, n, k.

        Raises DeviceError for an unknown name or an empty shape, CudaError where cublasLt has no algorithm.
        """
        if name not in _VARIANTS:
            raise DeviceError(f"a CUDA device has no operator {name!r}", f"it has: {', '.join(sorted(_VARIANTS))}")
        c, a, w, m, n, k = arguments
        if min(m, n, k) < 1:
            raise DeviceError(f"{name}: a product of shape m={m}, n={n}, k={k} is empty", "m, n and k are 1 at least")
        with self._context:
            problem = self._problem(_VARIANTS[name], c, a, w, m, n, k)
            algorithm = self._algorithm(Key.of(name, m, n, k, a, w, c), problem)
        call = problem.call(c, algorithm, self._workspace.address)
        return CudaOperator(name, self._context, partial(_enqueue, call))

    def close(self) -> None:
        """Give everything back. A second call does nothing."""
        if self._context.usable and self._handle:
            with self._context:
                for layout in self._layouts.values():
                    cublasLt.matrix_layout_destroy(layout)
                cublasLt.matmul_desc_destroy(self._description)
                cublasLt.destroy(self._handle)
        self._handle = 0
        self._workspace.free()

    def _problem(self, variant: _Variant, c: int, a: int, w: int, m: int, n: int, k: int) -> Problem:
        """Row-major is the transpose of column-major: Cᵀ[n,m] = (Wᵀ[k,n])ᵀ · Aᵀ[k,m], all dense."""
        zero, one = ctypes.addressof(self._scalars), ctypes.addressof(self._scalars) + 4
        return Problem(
            handle=self._handle,
            description=self._description,
            layouts=(self._layout(_BF16, k, n), self._layout(_BF16, k, m), self._layout(variant.dtype, n, m)),
            operands=(w, a),
            scalars=(one, one if variant.accumulates else zero),
            alignments=(alignment(w), alignment(a), alignment(c)),
            result_bytes=m * n * variant.element,
        )

    def _layout(self, dtype: int, rows: int, columns: int) -> int:
        key = (dtype, rows, columns)
        if key not in self._layouts:
            self._layouts[key] = called(cublasLt.matrix_layout_create, dtype, rows, columns, rows)
        return self._layouts[key]

    def _algorithm(self, key: Key, problem: Problem) -> ctypes.Array[Any]:
        """The algorithm for a shape: as used before by this object, as kept in the cache, or chosen by time."""
        if key not in self._chosen:
            kept = None if self._tune else self._cache.get(key)
            if kept is not None and is_usable(problem, kept):
                warm_up(self._context, problem, kept)
                self._chosen[key] = kept
            else:
                self._chosen[key] = fastest(self._context, problem, repr(str(key)))
                self._cache.put(key, self._chosen[key])
        return self._chosen[key]

    def _set_transposed(self) -> None:
        value = ctypes.c_int32(_TRANSPOSED)
        attribute = cublasLt.MatmulDescAttribute.TRANSA
        called(cublasLt.matmul_desc_set_attribute, self._description, attribute, ctypes.addressof(value), 4)


def _enqueue(call: Callable[[int], None], stream: int) -> tuple[Exception | None]:
    """Make the call; what cublasLt says against it, None where it is accepted."""
    try:
        call(stream)
    except cublasLt.cuBLASLtError as error:
        return (error,)
    return (None,)


def _version() -> int:
    """The library's version. Raises DeviceUnavailable where there is none."""
    try:
        return int(cublasLt.get_version())
    except RuntimeError as error:  # nvmath's own, where the library is not found
        raise DeviceUnavailable(f"cublasLt cannot be loaded: {error}", "pip install nvidia-cublas") from error


def called(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a cublasLt call returns. Raises CudaError with the call's name."""
    try:
        return function(*arguments)
    except cublasLt.cuBLASLtError as error:
        raise CudaError(f"cublasLt's {function.__name__} failed: {error}") from error
