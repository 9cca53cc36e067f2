"""The GPU's built-in operators: cublasLt's matrix products, bound to addresses, shape and algorithm.

Sums are in float32. A result in bfloat16 is rounded once; where it is added to an old C (`_acc`), cublasLt may
round the product before it adds C, and round the sum again, depending on the algorithm: each element is then within
2⁻⁸ (|product| + |sum|) of the exact one. Results in float32 are not rounded further.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref
from dataclasses import dataclass
from typing import Final

from kern.device.base import DeviceError
from kern.device.cuda import cublaslt
from kern.device.cuda.context import Context
from kern.device.cuda.launch import BoundOperator
from kern.device.cuda.matmul_autotune import (
    QUICK,
    THOROUGH,
    Algorithm,
    BindAddresses,
    Problem,
    fastest,
    is_usable,
    warm_up,
)
from kern.device.cuda.matmul_cache import MAX_ALIGNMENT, WORKSPACE_BYTES, AlgorithmCache, Shape
from kern.device.cuda.memory import CudaMemory


@dataclass(frozen=True, slots=True)
class _Variant:
    dtype: int
    accumulates: bool

    @property
    def element(self) -> int:
        return 4 if self.dtype == cublaslt.F32 else 2


_VARIANTS: Final = {
    "cublaslt_bf16_tn": _Variant(cublaslt.BF16, False),
    "cublaslt_bf16_tn_acc": _Variant(cublaslt.BF16, True),
    "cublaslt_bf16_tn_f32": _Variant(cublaslt.F32, False),
    "cublaslt_bf16_tn_f32_acc": _Variant(cublaslt.F32, True),
}

_LOW: Final = MAX_ALIGNMENT - 1


class Products:
    """cublasLt on one GPU: its handle, 32 MiB of workspace, descriptors, and the algorithm of each shape.

    What depends only on the shape and the alignments is made once and shared by operators. With `tune`, algorithms
    in the user's cache are not used but chosen again, from more candidates.
    """

    def __init__(self, context: Context, *, tune: bool) -> None:
        """Raises DeviceUnavailable, NoCacheFolder, CudaError, OutOfMemory."""
        self._context = context
        self._cache = AlgorithmCache(context.name(), cublaslt.version())
        self._tune = tune
        self._chosen: dict[Shape, Algorithm] = {}
        self._warm: set[tuple[str, bytes]] = set()
        self._bindable: dict[tuple[str, int, int, int, int, int, int], BindAddresses] = {}
        self._layouts: dict[tuple[int, int, int], int] = {}
        self._scalars = (ctypes.c_float * 2)(0.0, 1.0)
        self._workspace = CudaMemory(context, WORKSPACE_BYTES)
        with context:
            self._handle = cublaslt.create("cublasLtCreate")
            self._description = cublaslt.create("cublasLtMatmulDescCreate", cublaslt.COMPUTE_F32, cublaslt.F32)
            self._set_transposed()

    def bind(self, name: str, arguments: Sequence[int]) -> BoundOperator:
        """The operator NAME: row-major C[m,n] (+)= A[m,k] · W[n,k]ᵀ from addresses C, A, W and m, n, k.

        Raises DeviceError for an unknown name or an empty shape, CudaError where cublasLt has no algorithm.
        """
        if name not in _VARIANTS:
            raise DeviceError(f"unknown operator {name!r}", f"a CUDA device has: {', '.join(sorted(_VARIANTS))}")
        c, a, w, m, n, k = arguments
        like = (name, m, n, k, a & _LOW, w & _LOW, c & _LOW)
        bind = self._bindable.get(like)
        if bind is None:
            bind = self._bindable[like] = self._product(name, c, a, w, m, n, k)
        return BoundOperator(bind(w, a, c), cublaslt.described)

    def close(self) -> None:
        """Release everything. A second call does nothing."""
        if self._context.usable and self._handle:
            with self._context:
                for layout in self._layouts.values():
                    cublaslt.call("cublasLtMatrixLayoutDestroy", layout)
                cublaslt.call("cublasLtMatmulDescDestroy", self._description)
                cublaslt.call("cublasLtDestroy", self._handle)
        self._handle = 0
        self._bindable.clear()
        self._workspace.free()

    def _product(self, name: str, c: int, a: int, w: int, m: int, n: int, k: int) -> BindAddresses:
        if min(m, n, k) < 1:
            raise DeviceError(
                f"{name}: a product of shape m={m}, n={n}, k={k} is empty", "m, n and k must be at least 1"
            )
        shape = Shape.of(name, m, n, k, a, w, c)
        with self._context:
            problem = self._problem(shape)
            algorithm = self._algorithm(shape, problem, w)
        return problem.with_algorithm(algorithm, self._workspace.address)

    def _problem(self, shape: Shape) -> Problem:
        """Row-major is the transpose of column-major: Cᵀ[n,m] = (Wᵀ[k,n])ᵀ · Aᵀ[k,m], all dense."""
        m, n, k, variant = shape.m, shape.n, shape.k, _VARIANTS[shape.operator]
        zero, one = ctypes.addressof(self._scalars), ctypes.addressof(self._scalars) + 4
        bf16 = cublaslt.BF16
        return Problem(
            handle=self._handle,
            description=self._description,
            layouts=(self._layout(bf16, k, n), self._layout(bf16, k, m), self._layout(variant.dtype, n, m)),
            scalars=(one, one if variant.accumulates else zero),
            alignments=(shape.w, shape.a, shape.c),
            a_bytes=m * k * 2,
            c_bytes=m * n * variant.element,
        )

    def _layout(self, dtype: int, rows: int, columns: int) -> int:
        key = (dtype, rows, columns)
        if key not in self._layouts:
            self._layouts[key] = cublaslt.create("cublasLtMatrixLayoutCreate", dtype, rows, columns, rows)
        return self._layouts[key]

    def _algorithm(self, shape: Shape, problem: Problem, w: int) -> Algorithm:
        """The algorithm for a shape: the one used before by this object, the one in the cache, or the fastest.

        It is chosen for the next power of two from m on, so that most new values of m need no choice.
        """
        rounded, what = shape.rounded_up(), f"{shape.operator} of m={shape.m}, n={shape.n}, k={shape.k}"
        found = self._chosen.get(rounded) or (None if self._tune else self._cache.get(rounded))
        if found is None or not is_usable(problem, found):
            found = self._choose(rounded, problem, w, what)
            self._cache.put(rounded, found)
        elif (shape.operator, bytes(found)) not in self._warm:
            warm_up(self._context, problem, w, found, what)
        self._chosen[rounded] = found
        self._warm.add((shape.operator, bytes(found)))
        return found

    def _choose(self, rounded: Shape, problem: Problem, w: int, what: str) -> Algorithm:
        """The fastest at the rounded shape, or at the problem itself where cublasLt does not accept that one."""
        effort = THOROUGH if self._tune else QUICK
        found = fastest(self._context, self._problem(rounded), w, effort, what)
        return found if is_usable(problem, found) else fastest(self._context, problem, w, effort, what)

    def _set_transposed(self) -> None:
        value = ctypes.c_int32(cublaslt.TRANSPOSED)
        attribute = cublaslt.DESCRIPTION_TRANSPOSES_A
        cublaslt.call("cublasLtMatmulDescSetAttribute", self._description, attribute, byref(value), 4)
