"""Reads a host module from its file: loading a shared object would run its code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from kern.artifact.elf import Elf
from kern.artifact.errors import BadModule
from kern.artifact.segments import check_segments, dynamic, dynamic_strings
from kern.artifact.types import KernelInfo
from kern.manifest.params import SCALAR_BYTES, Param, layout

ALLOWED_LIBRARIES: Final = frozenset(
    {
        "libc.so.6",
        "libm.so.6",
        "libmvec.so.1",
        "libpthread.so.0",
        "libgomp.so.1",
        "libgcc_s.so.1",
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
    }
)
"""The libraries that a host module may need: those of the C library, of OpenMP and of the compiler."""

ENDS_PROCESS: Final = frozenset({"_exit", "_Exit", "daemon"})
"""Functions that end the process without the exit handlers of the C library, so that kern would not notice."""
REPLACES_PROCESS: Final = frozenset(
    {"execl", "execle", "execlp", "execv", "execve", "execveat", "execvp", "execvpe", "fexecve"}
)
COPIES_PROCESS: Final = frozenset({"fork", "_Fork", "vfork", "forkpty", "__fork", "__libc_fork", "__vfork"})
"""Functions after which two processes write the output of kern."""

_TYPES: Final[Mapping[str, Param]] = {
    "ptr": Param(direction="inout"),
    **{scalar: Param(scalar=scalar) for scalar in SCALAR_BYTES},
}
"""The types of parameters by their names in an ABI string."""

MAX_ABI_BYTES: Final = 2**20

MACHINES: Final = {"EM_X86_64": "x86-64", "EM_AARCH64": "aarch64"}
"""The ELF machines of host modules, with the prefix of their targets."""

_ABI = re.compile(r"(?P<symbol>[A-Za-z_]\w*)\((?P<types>(?:\w+(?:,\w+)*)?)\)", re.ASCII)
_TARGET = re.compile(r"x86-64-v[1-4]|aarch64")
_SEARCH_PATHS: Final = {"DT_RPATH", "DT_RUNPATH"}
_OTHER_CODE: Final = {"DT_AUXILIARY", "DT_FILTER", "DT_AUDIT", "DT_DEPAUDIT"}
"""Other entries that make the loader load code."""
_TEXT_RELOCATIONS: Final = 0x4
"""Bit of DT_FLAGS."""
_FOR_OTHERS: Final = 0x2 | 0x400
"""Bits of DT_FLAGS_1, global and interpose, which make other libraries use its symbols."""


def describe(elf: Elf) -> tuple[str, dict[str, KernelInfo]]:
    """The target of a host module and its kernels. Raises BadModule.

    Section .kern.target holds the target, .kern.abi one string per kernel: `name(ptr,i32)`.
    """
    if elf.type != "ET_DYN":
        raise BadModule("it is not a shared object", "compile it with -shared -fPIC")
    _check_dynamic(elf)
    _check_imported(elf)
    target = _target(elf)
    exported = {symbol.name for symbol in elf.functions("SHT_DYNSYM") if symbol.section}
    kernels: dict[str, KernelInfo] = {}
    for text in _strings(elf, ".kern.abi"):
        kernel = _kernel(text)
        if kernel.symbol in kernels:
            raise BadModule(f"it describes the kernel {kernel.symbol!r} twice")
        if kernel.symbol not in exported:
            raise BadModule(f"it describes the kernel {kernel.symbol!r} but does not export it")
        kernels[kernel.symbol] = kernel
    return target, kernels


def _kernel(text: str) -> KernelInfo:
    match = _ABI.fullmatch(text)
    types = tuple(match["types"].split(",")) if match and match["types"] else ()
    if match is None or not set(types) <= _TYPES.keys():
        raise BadModule(f"its section .kern.abi holds {text[:80]!r}, which is not a kernel's parameter list")
    return KernelInfo(match["symbol"], layout([_TYPES[kind] for kind in types]), types)


def _target(elf: Elf) -> str:
    targets = sorted(set(_strings(elf, ".kern.target")))
    if len(targets) != 1 or not _TARGET.fullmatch(targets[0]):
        shown = ", ".join(repr(target[:40]) for target in targets[:4]) or "nothing"
        raise BadModule(f"its section .kern.target holds {shown}, not one instruction set such as x86-64-v3")
    if not targets[0].startswith(MACHINES[str(elf.machine)]):
        raise BadModule(f"it claims the target {targets[0]}, but its code is for {elf.machine}")
    return targets[0]


def _strings(elf: Elf, name: str) -> Iterator[str]:
    """The zero-terminated strings of a section."""
    section = elf.section(name)
    if section is None:
        raise BadModule(f"it has no section {name}", "include kern_host.h and define kernels with KERN_KERNEL")
    data = elf.data(section)
    if len(data) > MAX_ABI_BYTES or (data and not data.endswith(b"\0")):
        raise BadModule(f"its section {name} is too long or does not end")
    try:
        yield from filter(None, data.decode("ascii").split("\0"))
    except UnicodeDecodeError:
        raise BadModule(f"its section {name} is not ASCII") from None


def _check_dynamic(elf: Elf) -> None:
    """Refuse libraries and search paths that no kernel needs.

    The loader reads the dynamic segment; a section named .dynamic may differ from it.
    """
    check_segments(elf)
    entries = list(dynamic(elf))
    for tag, value in entries:
        if tag in _SEARCH_PATHS:
            raise BadModule(f"it sets a library search path ({tag})", "link it without -rpath")
        if tag in _OTHER_CODE:
            raise BadModule(f"it asks the loader for other code ({tag})", "link it as a plain shared object")
        if tag == "DT_TEXTREL" or (tag == "DT_FLAGS" and value & _TEXT_RELOCATIONS):
            raise BadModule("the loader would have to change its code (DT_TEXTREL)", "compile it with -fPIC")
        if tag == "DT_FLAGS_1" and value & _FOR_OTHERS:
            raise BadModule(
                "it offers its symbols to other libraries (DT_FLAGS_1)", "link it without -z global and -z interpose"
            )
    strings = dynamic_strings(elf, dict(entries))
    for tag, value in entries:
        if tag == "DT_NEEDED" and (library := elf.string(strings, value)) not in ALLOWED_LIBRARIES:
            allowed = ", ".join(sorted(ALLOWED_LIBRARIES))
            raise BadModule(f"it needs the library {library!r}", f"a host module may need only {allowed}")


def _check_imported(elf: Elf) -> None:
    """Refuse functions after which kern would end, or run twice, without an error and with exit code 0.

    exit, abort and signals are not among them: libraries call them when they cannot continue, and kern reports which
    launch did.
    """
    effects = {"ends": ENDS_PROCESS, "replaces": REPLACES_PROCESS, "copies": COPIES_PROCESS}
    for name in elf.imported():
        for effect, functions in effects.items():
            if name in functions:
                raise BadModule(
                    f"it imports `{name}`, which {effect} the process",
                    "a kernel must return; if it cannot continue, call abort()",
                )
