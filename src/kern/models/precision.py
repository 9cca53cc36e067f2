"""The dtypes that depend on the kernels of a build: of the residual stream and of the rotation's table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Stored = Literal["bf16", "f32"]


@dataclass(frozen=True, slots=True)
class Precision:
    """The dtypes of the residual stream, and of the table of cosines and sines."""

    residual: Stored
    rope_table: Stored


OWN: Final = Precision(residual="f32", rope_table="f32")
"""The dtypes of our own kernels."""
RECORDED: Final = Precision(residual="bf16", rope_table="bf16")
"""The dtypes of recorded kernels."""
