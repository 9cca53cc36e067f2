"""Greedy decoding as a stream of token ids, the feedback on the device or through the host."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from kern.runtime.arrays import PendingArray
from kern.text.sequence import PagedSequence

AHEAD: Final = 4
"""Steps that may be under way beyond the last token read. Each is wasted where that token ends the text."""

Decode = Callable[[PagedSequence, int, int, int], Iterator[int]]
"""Sequence, token, its position, number of steps → the ids that follow."""


def device_fed(sequence: PagedSequence, token: int, position: int, steps: int) -> Iterator[int]:
    """Ids after `token` at `position`; each step takes its token from the one before on the device.

    Steps are launched ahead of what has been read while the device is busy, never past `steps`. Each goes one
    position further, and leaves the token at position p at p modulo the size of the ring.
    """
    executable = sequence.executable
    sequence.place([token], position)
    sequence.run("begin", 1)
    rings: deque[PendingArray] = deque()
    launched = 0
    for step in range(1, steps + 1):
        while launched < steps and len(rings) < AHEAD and not (rings and rings[0].done()):
            sequence.run("decode", 1)
            rings.append(executable.read_async("token_ring"))
            launched += 1
        ring = rings.popleft().wait()
        yield int(ring[0, (position + step) % ring.shape[1]])


def host_fed(sequence: PagedSequence, token: int, position: int, steps: int) -> Iterator[int]:
    """Ids after `token` at `position`; each step waits for the one before."""
    executable = sequence.executable
    begins = "begin" in executable.manifest.programs
    for step in range(steps):
        sequence.place([token], position + step)
        if begins:
            sequence.run("begin", 1)
        sequence.run("decode", 1)
        token = int(np.asarray(executable.read("next_token"))[0])
        yield token
