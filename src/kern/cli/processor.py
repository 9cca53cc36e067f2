"""How much processor time other processes take during a measurement, which makes it unreliable."""

from __future__ import annotations

import os
import sys
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
    """Seconds since an arbitrary start: elapsed, busy on the processors that we may use, and used by this process."""

    clock: float
    busy: float
    own: float
    processors: int
    tick: float


def processor_times() -> ProcessorTimes | None:
    """The times now; None if the system does not report them."""
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
    """The ticks of /proc/stat in which `processors` were busy, or taken by another virtual machine.

    None if not all of them are listed, as in some sandboxes.
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
    """The share of processor time that other processes took from `before` to `after`, 0 to 1.

    None if it is unknown: nothing is counted, or the interval was too short for the counters.
    """
    if before is None or after is None:
        return None
    whole = (after.clock - before.clock) * after.processors
    busy, own = after.busy - before.busy, after.own - before.own
    if whole < _LEAST_TICKS * after.tick or busy < own / 2:  # the counters do not advance
        return None
    return min(max(0.0, busy - own) / whole, 1.0)


def warn_of_others(share: float | None) -> None:
    """Warn on stderr if other processes took a share of processor time that a measurement shows."""
    if share is not None and share > WORTH_A_WARNING:
        print(
            f"warning: other processes took {share:.0%} of the processor during the measurement; "
            "repeat it on an idle machine",
            file=sys.stderr,
        )
