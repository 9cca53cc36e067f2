"""The instruction set that this machine's modules are built for, and the name of its processor."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kern.device.base import DeviceUnavailable

CPUINFO: Final = Path("/proc/cpuinfo")

# The x86-64 psABI's levels, in the kernel's spelling: pni is SSE3, abm is LZCNT.
_LEVELS: Final = (
    ("x86-64-v2", "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"),
    ("x86-64-v3", "abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"),
    ("x86-64-v4", "avx512bw avx512cd avx512dq avx512f avx512vl"),
)


def x86_64_level(flags: Iterable[str]) -> str | None:
    """The highest x86-64 level (psABI, section 3.1.1) whose CPU flags are all among `flags`, from v2 up."""
    present, reached = set(flags), None
    for level, needed in _LEVELS:
        if not present.issuperset(needed.split()):
            break
        reached = level
    return reached


def host_target() -> str:
    """The target of modules for this machine: `x86-64-v2`, `x86-64-v3`, `x86-64-v4` or `aarch64`.

    Raises DeviceUnavailable on any other machine.
    """
    machine = platform.machine()
    if machine == "aarch64":
        return machine
    level = x86_64_level(_cpu_field("flags").split()) if machine == "x86_64" else None
    if level is None:
        named = "x86-64 without SSE4.2" if machine == "x86_64" else machine or "unknown"
        raise DeviceUnavailable(
            f"the host device does not run on this machine, which is {named}",
            "it needs x86-64-v2 or better, or aarch64",
        )
    return level


def processor() -> str:
    """The processor's name, or the machine's kind where it has no name."""
    return _cpu_field("model name") or platform.machine()


def _cpu_field(name: str) -> str:
    for line in CPUINFO.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
