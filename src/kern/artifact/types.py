"""The content of an artifact folder before anything is loaded: modules, kernels and tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kern.manifest.params import Layout
from kern.manifest.types import Dim3

ModuleKind = Literal["cubin", "host"]


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """An entry point as its file describes it; sizes in bytes, None where the file does not say.

    `types` are the parameter types in the ABI string of a host module (`ptr`, `i32`, …).
    """

    symbol: str
    layout: Layout
    types: tuple[str, ...] | None = None
    registers: int | None = None
    static_shared_mem: int = 0
    max_threads: int | None = None
    required_block: Dim3 | None = None


@dataclass(frozen=True, slots=True)
class ModuleInfo:
    """A kernel file; its `image` was hashed, and is what will be loaded."""

    name: str
    kind: ModuleKind
    target: str
    sha256: str
    image: bytes
    kernels: Mapping[str, KernelInfo]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor of the weights file: dtype as in the manifest, None for one that it does not have."""

    name: str
    dtype: str | None
    stored_dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ResolvedStep:
    """The module and entry point of one step."""

    module: ModuleInfo
    kernel: KernelInfo


StepKey = tuple[str, int]
"""Kernel name and step index."""
