"""How much of the processor other processes take over a while: times measured next to busy ones are not reliable."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

STAT: Final = Path("/proc/stat")
WORTH_A_WARNING: Final = 0.05
"""Share of the processor that others may take before the measurement is called disturbed."""

_COUNTED: Final = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""The first columns of a processor's line in /proc/stat (proc(5)); guest time, which follows, is in user and nice."""
_IDLE: Final = ("idle", "iowait")
_LEAST_TICKS: Final = 20
"""Ticks of /proc/stat below which a share is mostly the rounding of its counters."""


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Seconds since some start: by the clock, busy on the processors that we may use, and used by us alone."""

    clock: float
    busy: float
    own: float
    processors: int
    tick: float


def processor_times() -> ProcessorTimes | None:
    """The times now; None where the system does not count them."""
    allowed, tick = os.sched_getaffinity(0), 1 / os.sysconf("SC_CLK_TCK")
    try:
        lines = STAT.read_text()
    except OSError:
        return None
    busy = busy_ticks(lines, allowed)
    used = os.times()
    return (
        None
        if busy is None
        else ProcessorTimes(time.perf_counter(), busy * tick, used.user + used.system, len(allowed), tick)
    )


def busy_ticks(stat: str, processors: Collection[int]) -> int | None:
    """The ticks of /proc/stat in which one of `processors` ran something, or was taken by another virtual machine.

    None where not all of them are listed, as in some sandboxes.
    """
    busy, names = 0, {f"cpu{number}" for number in processors}
    for line in stat.splitlines():
        name, *columns = line.split()
        if name not in names or len(columns) < len(_COUNTED):
            continue
        names.remove(name)
        counted = zip(_COUNTED, map(int, columns), strict=False)
        busy += sum(ticks for column, ticks in counted if column not in _IDLE)
    return None if names else busy


def others_share(before: ProcessorTimes | None, after: ProcessorTimes | None) -> float | None:
    """The share of the processors' time that went to others from `before` to `after`, 0 to 1.

    None where it is not known: nothing is counted, or the while was too short for the counters.
    """
    if before is None or after is None:
        return None
    whole = (after.clock - before.clock) * after.processors
    busy, own = after.busy - before.busy, after.own - before.own
    if whole < _LEAST_TICKS * after.tick or busy < own / 2:  # counters that stand still count nothing
        return None
    return min(max(0.0, busy - own) / whole, 1.0)
