"""Reads a cubin from its ELF sections: architecture, kernels, parameter layouts and limits.

NVIDIA documents none of this; the attributes below are those that its compilers of CUDA 11 to 13 write. Two flavours
of the ELF header are in use: ABI version 7 (architecture in the low byte of e_flags) and 8 (in bits 8 to 15).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, cast

from kern.artifact.elf import Elf, Symbol
from kern.artifact.errors import BadModule
from kern.artifact.types import KernelInfo
from kern.manifest.params import Layout
from kern.manifest.types import Dim3

MACHINE: Final = "EM_CUDA"
MAX_PARAMS: Final = 4096
"""More than the 32,764 bytes of parameters that a kernel may have allow in practice."""

_ENTRY: Final = 0x10
"""Bit of st_other that marks a kernel, as opposed to a function that kernels call."""

_MAX_THREADS, _REQUIRED_BLOCK, _PARAM, _PARAM_BANK, _REGISTERS, _PARAM_LARGE = 0x05, 0x10, 0x17, 0x19, 0x2F, 0x45
"""Attributes of .nv.info sections (EIATTR_*)."""
_ACCELERATED: Final = 0x09
"""Attribute of .nv.compat: 1 in code for a single architecture, as sm_90a."""
_ACCELERATED_FLAG: Final = 0x800
"""The same in e_flags of ABI version 7."""

_SIZED: Final = 4
"""The attribute format whose 16-bit field is a length; in the others it is the value."""

_RESERVED_SHARED: Final = 1024
"""Bytes of .nv.shared.NAME reserved for the system, on sm_90 and later; they do not count toward a block's limit."""


@dataclass(frozen=True, slots=True)
class _Attribute:
    code: int
    data: bytes


def describe(elf: Elf) -> tuple[str, dict[str, KernelInfo]]:
    """The target of a cubin (`sm_90a`) and its kernels by symbol, mangled as in the file. Raises BadModule."""
    if elf.type == "ET_REL":
        raise BadModule("it is relocatable device code", "link it (nvlink), or compile it without -rdc")
    if elf.type != "ET_EXEC":
        raise BadModule("it is not an executable cubin")
    if sum(section.size for section in elf.sections if section.name.startswith(".nv.info")) > len(elf.image):
        raise BadModule("its .nv.info sections overlap: together they are longer than the file")
    architecture = _architecture(elf)
    registers = _registers(elf)
    kernels: dict[str, KernelInfo] = {}
    for symbol in elf.functions("SHT_SYMTAB"):
        if symbol.other & _ENTRY and symbol.section:
            if symbol.name in kernels:
                raise BadModule(f"it defines the kernel {symbol.name!r} twice")
            kernels[symbol.name] = _kernel(elf, symbol, architecture, registers.get(symbol.index))
    accelerated = "a" if _is_accelerated(elf) else ""
    return f"sm_{architecture}{accelerated}", kernels


def _architecture(elf: Elf) -> int:
    if elf.abi_version not in (7, 8):
        raise BadModule(
            f"its ELF ABI version is {elf.abi_version}; versions 7 and 8 are read",
            "compile it with CUDA 11, 12 or 13",
        )
    return (elf.flags if elf.abi_version == 7 else elf.flags >> 8) & 0xFF


def _is_accelerated(elf: Elf) -> bool:
    if elf.abi_version == 7:
        return bool(elf.flags & _ACCELERATED_FLAG)
    return any(
        attribute.code == _ACCELERATED and attribute.data[:1] == b"\x01" for attribute in _attributes(elf, ".nv.compat")
    )


def _registers(elf: Elf) -> dict[int, int]:
    """Registers per thread, by the kernel's index in the symbol table."""
    registers: dict[int, int] = {}
    for attribute in _attributes(elf, ".nv.info"):
        if attribute.code == _REGISTERS:
            index, count = _words(attribute, 2)
            registers[index] = count
    return registers


def _kernel(elf: Elf, symbol: Symbol, architecture: int, registers: int | None) -> KernelInfo:
    if elf.section(f".nv.info.{symbol.name}") is None:
        raise BadModule(f"its kernel {symbol.name!r} has no section .nv.info, so its parameters are unknown")
    params: list[tuple[int, int, int]] = []
    max_threads, required, bank = None, None, None
    for attribute in _attributes(elf, f".nv.info.{symbol.name}"):
        if attribute.code in (_PARAM, _PARAM_LARGE):
            params.append(_param(attribute))
        elif attribute.code == _PARAM_BANK:
            bank = int.from_bytes(attribute.data, "little")
        elif attribute.code == _MAX_THREADS:
            max_threads = math.prod(_words(attribute, 3))
        elif attribute.code == _REQUIRED_BLOCK:
            required = cast(Dim3, _words(attribute, 3))
    shared = elf.section(f".nv.shared.{symbol.name}")
    reserved = _RESERVED_SHARED if architecture >= 90 else 0
    return KernelInfo(
        symbol.name,
        _layout(symbol.name, params, bank),
        registers=registers,
        static_shared_mem=max(0, shared.size - reserved) if shared else 0,
        max_threads=max_threads,
        required_block=required,
    )


def _param(attribute: _Attribute) -> tuple[int, int, int]:
    """Ordinal, byte offset and size of a parameter: u32, u16 ordinal, u16 offset, u32.

    The last word has the size in its top 14 bits, or is the size where a kernel has more than 4 KB of parameters.
    """
    _, position, word = _words(attribute, 3)
    return position & 0xFFFF, position >> 16, word if attribute.code == _PARAM_LARGE else word >> 18


def _layout(kernel: str, params: list[tuple[int, int, int]], bank: int | None) -> Layout:
    """The layout of a kernel whose parameters take `bank` bytes together; None if its file does not say."""
    if len(params) > MAX_PARAMS:
        raise BadModule(f"its kernel {kernel!r} has {len(params):,} parameters")
    params.sort()
    if [ordinal for ordinal, _, _ in params] != list(range(len(params))):
        raise BadModule(f"its kernel {kernel!r} does not number its parameters 0, 1, 2, …")
    end = max((offset + size for _, offset, size in params), default=0)
    if bank is not None and bank != end:
        raise BadModule(f"the parameters of its kernel {kernel!r} end at byte {end:,}, and together take {bank:,}")
    return Layout(tuple(offset for _, offset, _ in params), tuple(size for _, _, size in params))


def _attributes(elf: Elf, section: str) -> Iterator[_Attribute]:
    """The attributes of a .nv.info section, in order; none if there is no such section."""
    found = elf.section(section)
    data = elf.data(found) if found else b""
    position = 0
    while position < len(data):
        if position + 4 > len(data):
            raise BadModule(f"its section {section!r} is truncated")
        form, code, value = struct.unpack_from("<BBH", data, position)
        start, length = (position + 4, value) if form == _SIZED else (position + 2, 2)
        position = start + length
        if position > len(data):
            raise BadModule(f"its section {section!r} is truncated")
        yield _Attribute(code, data[start:position])


def _words(attribute: _Attribute, count: int) -> tuple[int, ...]:
    """An attribute's 32-bit words."""
    if len(attribute.data) != 4 * count:
        raise BadModule(f"its attribute {attribute.code:#x} has {len(attribute.data)} bytes, not {4 * count}")
    return struct.unpack(f"<{count}I", attribute.data)
