"""Kernel parameters as the bytes that a launch receives."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kern.manifest.params import Layout, Param, Scalar, layout

_FORMATS: Final[dict[Scalar, str]] = {"i32": "i", "u32": "I", "i64": "q", "f32": "f", "u8": "B"}
_ADDRESS: Final = "Q"


@dataclass(frozen=True, slots=True)
class Packer:
    """Packs the values of one parameter list, little-endian, each at its offset in `layout`."""

    layout: Layout
    _struct: struct.Struct

    def pack(self, values: Sequence[int | float]) -> bytes:
        """The parameter buffer; `values` are addresses and scalars in order."""
        return self._struct.pack(*values)


def packer(params: Sequence[Param]) -> Packer:
    """The packer of a parameter list."""
    where = layout(params)
    parts, end = ["<"], 0
    for param, offset, size in zip(params, where.offsets, where.sizes, strict=True):
        parts.append("x" * (offset - end) + _format(param))
        end = offset + size
    return Packer(where, struct.Struct("".join(parts)))


def _format(param: Param) -> str:
    return _ADDRESS if param.scalar is None else _FORMATS[param.scalar]
