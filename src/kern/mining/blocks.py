"""The block of launches that a pass repeats.

>>> repeated(["gather", "scale", "add", "scale", "add", "scale", "add", "best"])
Block(first=1, period=2, count=3)
>>> repeated(["gather", "scale", "add", "best"]) is None
True
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

MAX_PERIOD: Final = 4096
"""Launches of the longest block that is looked for: each length is one look at the whole pass."""


@dataclass(frozen=True, slots=True)
class Block:
    """`count` times the same `period` launches, from launch `first` of a pass."""

    first: int
    period: int
    count: int


def repeated(kernels: Sequence[Hashable]) -> Block | None:
    """The shortest block whose repetitions cover most of a sequence; None where they do not cover half of it."""
    number: dict[Hashable, int] = {}
    sequence = np.array([number.setdefault(kernel, len(number)) for kernel in kernels])
    best, covered = None, len(sequence) // 2
    for period in range(1, min(len(sequence) // 2, MAX_PERIOD) + 1):
        same = np.flatnonzero(np.r_[False, sequence[period:] == sequence[:-period], False] == 0)
        runs = np.diff(same) - 1
        longest = int(np.argmax(runs))
        count = (int(runs[longest]) + period) // period
        if count > 1 and int(runs[longest]) + period > covered:
            covered = int(runs[longest]) + period
            best = Block(int(same[longest]), period, count)
    return best
