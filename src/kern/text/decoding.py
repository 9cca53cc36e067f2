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

    Steps are launched ahead of what has been read while the device is busy, never past `steps`. What has been
    decoded is read from the ring, where the token at position p stands at p modulo its size.
    """
    executable = sequence.executable
    sequence.place([token], position)
    sequence.run("begin", 1)
    reports: deque[tuple[PendingArray, PendingArray]] = deque()
    launched = 0
    while launched < steps or reports:
        if launched < steps and len(reports) < AHEAD and not (reports and reports[0][1].done()):
            sequence.run("decode", 1)
            reports.append((executable.read_async("step_position"), executable.read_async("token_ring")))
            launched += 1
            continue
        reached, ring = (report.wait() for report in reports.popleft())
        while position < int(reached[0]):
            position += 1
            yield int(ring[0, position % ring.shape[1]])


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
