"""Whether a number fits a scalar parameter."""

from __future__ import annotations

import struct

from kern.manifest.params import F32_MAX, SCALAR_RANGE, Scalar
from kern.manifest.types import F32, Literals


def literal_fits(literal: Literals) -> bool:
    """Whether a literal's value is one of its type; an f32 must stay finite when rounded to single precision."""
    if isinstance(literal, F32):
        return abs(literal.f32) <= F32_MAX or _rounds_to_finite(literal.f32)
    low, high = SCALAR_RANGE[literal.scalar]
    return low <= literal.value <= high


def _rounds_to_finite(value: float) -> bool:
    try:
        struct.pack("<f", value)
    except OverflowError:
        return False
    return True


def range_of(scalar: Scalar) -> str:
    """The values of a scalar type, for people."""
    if scalar == "f32":
        return f"at most ±{F32_MAX:.7g}"
    low, high = SCALAR_RANGE[scalar]
    return f"{low} … {high}"
