"""What this process may use: cores and memory, limited by the machine and by its control groups (v2)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
OWN_CGROUP: Final = Path("/proc/self/cgroup")


def available_cores() -> int:
    """Cores this process may run on, at least 1: its affinity, limited by the CPU quota of its control groups."""
    cores = len(os.sched_getaffinity(0))
    return min([cores, *(quota_cores(text) for text in _settings("cpu.max"))])


def quota_cores(cpu_max: str) -> int:
    """The cores that a `cpu.max` line (`QUOTA PERIOD`, in µs, or `max PERIOD`) allows, rounded up."""
    quota, period = cpu_max.split()
    return 1 << 30 if quota == "max" else max(1, -(-int(quota) // int(period)))


def available_memory() -> int:
    """Bytes that can be committed without swapping: MemAvailable, limited by the memory limits of the groups."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    machine = int(fields["MemAvailable"].split()[0]) * 1024
    return max(0, min([machine, *_group_room()]))


def _group_room() -> Iterator[int]:
    for group in _groups():
        limit = _read(group / "memory.max")
        if limit and limit != "max":
            stat = dict(line.split() for line in _read(group / "memory.stat").splitlines())
            cache = int(stat.get("active_file", 0)) + int(stat.get("inactive_file", 0))
            yield int(limit) - int(_read(group / "memory.current")) + cache


def _settings(name: str) -> Iterator[str]:
    return (text for group in _groups() if (text := _read(group / name)))


def _groups() -> Iterator[Path]:
    """The folders of this process's control group and of its ancestors."""
    for line in _read(OWN_CGROUP).splitlines():
        if line.startswith("0::"):
            own = CGROUP_ROOT / line[3:].lstrip("/")
            yield own
            yield from (above for above in own.parents if above.is_relative_to(CGROUP_ROOT))


def _read(path: Path) -> str:
    """The file's text, empty where this kernel or this group has no such file."""
    try:
        return path.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
