"""How fast this machine reads memory, a bound for kernels that stream their weights."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kern.device.host.memory import allocate, view

REGION: Final = 512 << 20
"""Bytes read per pass; some servers have caches of more than half of this."""

_SECONDS: Final = 0.25


def read_bandwidth(threads: int) -> float:
    """Bytes per second of a read-only stream by `threads` threads over 512 MB: the best pass of a quarter second.

    numpy's maximum of int32 reads as fast as a hand-written vector loop, and leaves the interpreter to others.
    Raises OutOfMemory.
    """
    memory = allocate(REGION)
    try:
        parts = np.array_split(np.frombuffer(view(memory.address, REGION), np.int32), threads)
        with ThreadPoolExecutor(threads) as pool:
            # Untouched pages are all one page of zeros, which stays in the cache.
            list(pool.map(_touch, parts))
            return REGION / _best_pass(pool, parts)
    finally:
        memory.free()


def _best_pass(pool: ThreadPoolExecutor, parts: list[NDArray[np.int32]]) -> float:
    started, best = perf_counter(), float("inf")
    while (begun := perf_counter()) - started < _SECONDS or best == float("inf"):
        list(pool.map(np.max, parts))
        best = min(best, perf_counter() - begun)
    return best


def _touch(part: NDArray[np.int32]) -> None:
    part.fill(1)
