"""Whether a number fits a scalar parameter."""

from __future__ import annotations

import struct

from kern.manifest.params import F32_MAX, SCALAR_RANGE, Scalar
from kern.manifest.types import Literals


def literal_fits(literal: Literals) -> bool:
    """Whether a literal's value is one of its type; an f32 must stay finite when rounded to single precision."""
    value = literal.value
    if literal.scalar == "f32":
        return abs(value) <= F32_MAX or _rounds_to_finite(value)
    low, high = SCALAR_RANGE[literal.scalar]
    return low <= value <= high


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
