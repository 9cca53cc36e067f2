"""Describes a kernel file from its bytes: its kind, its target and its kernels."""

from __future__ import annotations

from types import MappingProxyType

from kern.artifact import cubin, host_module
from kern.artifact.elf import Elf
from kern.artifact.errors import BadModule
from kern.artifact.types import ModuleInfo, ModuleKind


def describe(name: str, image: bytes, sha256: str) -> ModuleInfo:
    """Read a cubin or a host module without loading it. Raises BadModule, naming the file.

    `sha256` is the hash of `image`, in hexadecimal.
    """
    try:
        elf = Elf(image)
        kind: ModuleKind
        if elf.machine == cubin.MACHINE:
            kind, (target, kernels) = "cubin", cubin.describe(elf)
        elif elf.machine in host_module.MACHINES:
            kind, (target, kernels) = "host", host_module.describe(elf)
        else:
            raise BadModule(f"its machine is {elf.machine}, not an NVIDIA GPU, x86-64 or aarch64")
    except BadModule as error:
        raise BadModule(f"kernels/{name} is not a usable kernel file: {error.message}", error.help) from None
    return ModuleInfo(name, kind, target, sha256, image, MappingProxyType(kernels))
