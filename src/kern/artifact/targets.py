"""Which code runs on which machine, and the limit of shared memory per block."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from kern.artifact.errors import UnknownTarget
from kern.artifact.types import ModuleKind

_SM = re.compile(r"sm_(?P<major>[1-9][0-9]?)(?P<minor>[0-9])(?P<suffix>[af]?)")
_X86 = re.compile(r"x86-64-v(?P<level>[1-4])")

_INTEGRATED: Final = frozenset({53, 62, 72, 87, 110})
"""Architectures of NVIDIA systems on a chip, whose code is not compatible with that of others."""

_SHARED_MEM_KB: Final = {
    50: 48, 52: 48, 53: 48, 60: 48, 61: 48, 62: 48, 70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99,
    90: 227, 100: 227, 103: 227, 110: 227, 120: 99, 121: 99,
}  # fmt: skip
"""Shared memory per block in KB, from the CUDA C++ programming guide, technical specifications."""


class Target(NamedTuple):
    """A parsed target: `number` is 90 for sm_90, 3 for x86-64-v3, 0 for aarch64."""

    kind: ModuleKind
    family: str
    number: int
    exact: bool


def parse(name: str) -> Target:
    """Read `sm_90`, `sm_90a`, `x86-64-v3` or `aarch64`. Raises UnknownTarget."""
    if match := _SM.fullmatch(name):
        return Target("cubin", "sm", int(match["major"] + match["minor"]), match["suffix"] == "a")
    if match := _X86.fullmatch(name):
        return Target("host", "x86-64", int(match["level"]), False)
    if name == "aarch64":
        return Target("host", "aarch64", 0, False)
    raise UnknownTarget(f"{name!r} is not a target", "use a target such as sm_90, sm_90a, x86-64-v3 or aarch64")


def runs_on(module: str, machine: str) -> bool:
    """Whether code built for `module` runs on `machine`. Raises UnknownTarget.

    A cubin runs on the same major version and the same or a later minor one; with suffix `a`, on its own architecture
    only. Host code runs on its own level and higher ones.
    """
    code, host = parse(module), parse(machine)
    if code.family != host.family:
        return False
    if code.kind == "host" or code.number == host.number:
        return code.number <= host.number
    same_major = code.number // 10 == host.number // 10
    only_itself = code.exact or not _INTEGRATED.isdisjoint({code.number, host.number})
    return same_major and code.number < host.number and not only_itself


def shared_mem_limit(target: str) -> int | None:
    """Bytes of shared memory, static and dynamic, that a block may have.

    None on the host, and for an architecture newer than the table, where only the driver knows.
    """
    kilobytes = _SHARED_MEM_KB.get(parse(target).number) if target.startswith("sm_") else None
    return None if kilobytes is None else kilobytes * 1024
