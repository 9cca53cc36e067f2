"""Work counted, not timed: the bytecodes that a call runs, and the bytes that it holds at its peak."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any


def bytecodes(call: Callable[[], object]) -> int:
    """The bytecodes of Python code that `call` runs in this thread. What C code does within one counts as one."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 gives no such events where no frame asked before settrace
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def peak_bytes(call: Callable[[], object]) -> int:
    """The most bytes of Python objects that `call` holds at once: copies made in C show up here."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def growth(of: Callable[[int], Callable[[], object]], n: int) -> float:
    """How the bytecodes added from n to 2n relate to those from n/2 to n: 2 where they grow linearly, 4 by squares."""
    least, less, more = (bytecodes(of(size)) for size in (n // 2, n, 2 * n))
    return (more - less) / (less - least)


def spread(of: Callable[[int], Callable[[], object]], n: int) -> float:
    """How the peak at 8n relates to that at n: 8 where it grows linearly, up to twice that where tables double."""
    return peak_bytes(of(8 * n)) / peak_bytes(of(n))
