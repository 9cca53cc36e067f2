"""How many threads a kernel may use: as requested, as set in the environment, or one per available core."""

from __future__ import annotations

import os
from typing import Final

from kern.device.base import DeviceError
from kern.device.host.limits import available_cores
from kern.manifest.errors import variant

VARIABLE: Final = "KERN_THREADS"
MAX_THREADS: Final = 1024


ThreadsError = variant(DeviceError, "bad-thread-count", "The number of threads is not from 1 to 1024.", exit_code=2)


def thread_count(asked: int | None) -> int:
    """`asked`, else KERN_THREADS, else the cores available. Raises ThreadsError outside 1 … 1024."""
    if asked is not None:
        return _checked(asked, f"threads={asked}")
    text = os.environ.get(VARIABLE, "")
    if not text:
        return min(available_cores(), MAX_THREADS)
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0
    return _checked(number, f"{VARIABLE}={text!r}")


def bound_spinning() -> None:
    """Let OpenMP's idle threads sleep soon, unless the environment says how long they are to spin.

    By default, libgomp's threads spin for milliseconds at every barrier. Where another process runs on one of the
    cores, a kernel's threads then wait whole time slices for each other: a program of small kernels ran twenty
    times slower. This many iterations last longer than the gap between two kernels. The variable is read when
    libgomp is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def _checked(count: int, named: str) -> int:
    if not 1 <= count <= MAX_THREADS:
        raise ThreadsError(f"{named} is not a number of threads", f"give a whole number from 1 to {MAX_THREADS}")
    return count
