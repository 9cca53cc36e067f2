"""What a program is lowered to: a flat list of launches of kernels and operators, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kern.manifest.params import Layout
from kern.manifest.types import Dim3


class EntryPoint(Protocol):
    """A kernel of a loaded module, as a handle: only the device that loaded the module can look behind it."""

    @property
    def symbol(self) -> str:
        """Its name in the module."""


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One kernel launch, everything resolved. `params` is the parameter buffer, `layout` divides it."""

    label: str
    function: EntryPoint
    grid: Dim3
    block: Dim3
    shared_mem: int
    params: bytes
    layout: Layout
    pdl: bool = False
    cluster: Dim3 | None = None
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class OperatorLaunch:
    """One call of the built-in operator `name`, with addresses and scalars in interface order."""

    label: str
    name: str
    arguments: tuple[int, ...]


Launch = KernelLaunch | OperatorLaunch
