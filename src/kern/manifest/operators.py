"""The operators built into every device: their interfaces, and the bytes that their operands span."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kern.manifest.expressions import Expr
from kern.manifest.params import DTYPE_BYTES, Param
from kern.manifest.types import Step


class Extent(NamedTuple):
    """The bytes of a dense matrix: their number is the product of the three."""

    rows: Expr
    columns: Expr
    item: int


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """C[m, n] = A[m, k] · W[n, k]ᵀ, row-major and dense: its interface is C, A, W, m, n, k."""

    params: tuple[Param, ...]

    def extents(self, m: Expr, n: Expr, k: Expr) -> tuple[Extent, Extent, Extent]:
        """The bytes of C, A and W."""
        c, a, w = (DTYPE_BYTES[param.dtype] for param in self.params[:3] if param.dtype is not None)
        return Extent(m, n, c), Extent(m, k, a), Extent(n, k, w)

    def fits(self, params: tuple[Param, ...]) -> bool:
        """Whether a step's parameters are these; it may ask for more alignment."""
        return params == self.params or tuple(param.unaligned for param in params) == self.params


def _product(c: str) -> MatrixProduct:
    return MatrixProduct(tuple(map(Param.parse, (c, "in buffer<bf16>", "in buffer<bf16>", "i32", "i32", "i32"))))


OPERATORS: Final[Mapping[str, MatrixProduct]] = {
    "cublaslt_bf16_tn": _product("out buffer<bf16>"),
    "cublaslt_bf16_tn_acc": _product("inout buffer<bf16>"),
    "cublaslt_bf16_tn_f32": _product("out buffer<f32>"),
    "cublaslt_bf16_tn_f32_acc": _product("inout buffer<f32>"),
}


def operator_of(step: Step) -> MatrixProduct | None:
    """The built-in operator behind a step; None for a kernel in a file and for an unknown name."""
    return OPERATORS.get(step.operator) if step.operator is not None else None


def launch_params(step: Step) -> tuple[Param, ...]:
    """The parameters that a step's arguments are for: its own, or an operator's true ones where it misstates them."""
    operator = operator_of(step)
    return step.params if operator is None or operator.fits(step.params) else operator.params
