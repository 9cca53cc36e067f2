"""Kernel parameters: the strings `in buffer<bf16>`, `inout ptr align 16`, `i32`, and their ABI layout."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, cast

from pydantic_core import PydanticCustomError, ValidationError, core_schema

DType = Literal["bf16", "f16", "f32", "fp8e4m3", "i32", "u32", "i64", "u8"]
Scalar = Literal["i32", "u32", "i64", "f32", "u8"]
Direction = Literal["in", "out", "inout"]

DTYPE_BYTES: Final[dict[DType, int]] = {
    "bf16": 2, "f16": 2, "f32": 4, "fp8e4m3": 1, "i32": 4, "u32": 4, "i64": 8, "u8": 1,
}  # fmt: skip
SCALAR_BYTES: Final[dict[Scalar, int]] = {"i32": 4, "u32": 4, "i64": 8, "f32": 4, "u8": 1}
SCALAR_RANGE: Final[dict[str, tuple[int, int]]] = {
    "i32": (-(2**31), 2**31 - 1),
    "u32": (0, 2**32 - 1),
    "i64": (-(2**63), 2**63 - 1),
    "u8": (0, 255),
}
F32_MAX: Final = 3.4028234663852886e38

PARAM_PATTERN: Final = (
    r"^(?:(?P<scalar>i32|u32|i64|f32|u8)"
    r"|(?P<direction>in|out|inout) (?:(?P<ptr>ptr)|buffer<(?P<dtype>bf16|f16|f32|fp8e4m3|i32|u32|i64|u8)>)"
    r"(?: align (?P<align>[1-9][0-9]{0,8}))?)\Z"
)
_PARAM = re.compile(PARAM_PATTERN)


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of an interface or of a launch.

    A scalar has `scalar`; a pointer has `direction` and, unless it is a bare `ptr`, `dtype`. `align` is the
    alignment in bytes that the kernel requires, where it is more than that of the dtype. `reads` and
    `writes` say whether the kernel may read and write through the pointer.
    """

    scalar: Scalar | None = None
    direction: Direction | None = None
    dtype: DType | None = None
    align: int | None = None
    reads: bool = field(init=False, repr=False, compare=False)
    writes: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Attributes, since effects read them for every access of every dispatch.
        object.__setattr__(self, "reads", self.direction in ("in", "inout"))
        object.__setattr__(self, "writes", self.direction in ("out", "inout"))

    @classmethod
    @lru_cache(1024)
    def parse(cls, text: str) -> Param:
        """Read a parameter string. Raises ValueError for any other string."""
        match = _PARAM.match(text)
        if match is None:
            raise ValueError(f"{text!r} is not a parameter such as 'i32', 'in buffer<f32>' or 'inout ptr align 16'")
        if match["scalar"]:
            return cls(scalar=cast(Scalar, match["scalar"]))
        align = int(match["align"]) if match["align"] else None
        if align is not None and align & (align - 1):
            raise ValueError(f"{text!r}: the alignment is not a power of two")
        dtype = cast("DType | None", match["dtype"])
        return cls(direction=cast(Direction, match["direction"]), dtype=dtype, align=align)

    def __str__(self) -> str:
        if self.scalar is not None:
            return self.scalar
        kind = f"buffer<{self.dtype}>" if self.dtype is not None else "ptr"
        return f"{self.direction} {kind}" + (f" align {self.align}" if self.align is not None else "")

    @property
    def is_pointer(self) -> bool:
        """Whether this parameter is an address."""
        return self.scalar is None

    @property
    def kind(self) -> str:
        """The type that a caller and a callee must agree on: without direction and alignment."""
        if self.scalar is not None:
            return self.scalar
        return f"buffer<{self.dtype}>" if self.dtype is not None else "ptr"

    @property
    def unaligned(self) -> Param:
        """The same parameter without `align`."""
        return self if self.align is None else Param(self.scalar, self.direction, self.dtype)

    @property
    def alignment(self) -> int:
        """The alignment in bytes that an address given for this parameter must have."""
        return max(self.align or 1, DTYPE_BYTES[self.dtype] if self.dtype is not None else 1)

    @property
    def abi_bytes(self) -> int:
        """Size in bytes in the parameter buffer; also its alignment there."""
        return 8 if self.scalar is None else SCALAR_BYTES[self.scalar]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        def read(value: Any, validate: core_schema.ValidatorFunctionWrapHandler) -> Param:
            if isinstance(value, cls):
                return value
            try:
                return cls.parse(validate(value))
            except ValidationError:
                raise
            except ValueError:
                raise PydanticCustomError("param", "not a parameter") from None

        return core_schema.no_info_wrap_validator_function(
            read,
            core_schema.str_schema(strict=True, pattern=None),
            serialization=core_schema.plain_serializer_function_ser_schema(str),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "string", "pattern": re.sub(r"\?P<\w+>", "", PARAM_PATTERN).replace(r"\Z", "$")}


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offset and size of each parameter in the parameter buffer."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        return " ".join(f"{offset}:{size}" for offset, size in zip(self.offsets, self.sizes, strict=True))


def layout(params: Sequence[Param]) -> Layout:
    """The C ABI's layout of a parameter list: each at the next offset that its size divides."""
    offsets, end = [], 0
    for param in params:
        size = param.abi_bytes
        start = -(-end // size) * size
        offsets.append(start)
        end = start + size
    return Layout(tuple(offsets), tuple(param.abi_bytes for param in params))
