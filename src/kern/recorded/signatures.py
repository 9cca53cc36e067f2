"""A recorded kernel's own parameters, by name and type, as the engine's source declares them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from kern.manifest.params import SCALAR_BYTES, Layout, Param, Scalar, layout
from kern.mining.symbols import short

Value: TypeAlias = int | float

_POINTER: Final = Param(direction="in")
"""Stands for any address: what it leads to, and whether that is written, is said by the parameter's binding."""
_FORMATS: Final[dict[Scalar, str]] = {"i32": "<i", "u32": "<I", "i64": "<q", "f32": "<f", "u8": "<B"}


@dataclass(frozen=True, slots=True)
class Signature:
    """A kernel's parameters in the order of its ABI, each a scalar's type or None for an address.

    `role` is what the engine's tables call the kernel. `starts` is what the symbol of every instance starts with,
    `exact` that of the instances which may be used.
    """

    role: str
    starts: str
    exact: str
    params: tuple[tuple[str, Scalar | None], ...]

    @classmethod
    def of(cls, role: str, starts: str, exact: str, text: str) -> Signature:
        """A signature from `name` for an address and `name:type` for a scalar."""
        scalars: dict[str, Scalar] = {scalar: scalar for scalar in SCALAR_BYTES}
        words = (word.partition(":") for word in text.split())
        return cls(role, starts, exact, tuple((name, scalars[kind] if kind else None) for name, _, kind in words))

    @property
    def name(self) -> str:
        """The kernel's name, for a message."""
        return short(f"{self.starts}E") if self.starts.startswith("_ZN") else self.starts

    @property
    def layout(self) -> Layout:
        """The offsets and sizes that the binary must have."""
        return layout([_POINTER if scalar is None else Param(scalar=scalar) for _, scalar in self.params])

    def values(self, params: Sequence[bytes]) -> dict[str, Value]:
        """What the parameters hold, given the bytes of each; an address is an integer."""
        return {name: _value(scalar, data) for (name, scalar), data in zip(self.params, params, strict=True)}


def _value(scalar: Scalar | None, data: bytes) -> Value:
    if scalar is None:
        return int.from_bytes(data, "little")
    value: Value = struct.unpack(_FORMATS[scalar], data)[0]
    return value
