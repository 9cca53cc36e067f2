"""Greedy decoding as a stream of token ids, the feedback on the device or through the host."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from kern.contracts.text import READ_EVERY
from kern.engine.choices import chosen
from kern.engine.sequence import PagedSequence
from kern.runtime.arrays import PendingArray
from kern.runtime.executable import Executable

MAX_READS_IN_FLIGHT: Final = 4
"""Readings that may be under way beyond the last one taken. The steps before them are wasted where the text ends."""

Decode = Callable[[PagedSequence, int, int, int], Iterator[int]]
"""Sequence, token, its position, number of steps → the ids that follow."""


def stride(executable: Executable) -> int:
    """Steps between two readings of what an executable has decoded."""
    return READ_EVERY if executable.device.asynchronous else 1


def device_fed(sequence: PagedSequence, token: int, position: int, steps: int) -> Iterator[int]:
    """Ids after `token` at `position`; each step takes its token from the one before on the device.

    Steps are launched ahead of what has been read while the device is busy, never past `steps`. Each goes one
    position further, and leaves the token at position p at p modulo the size of the ring. Raises UnusableLogits.
    """
    executable, apart = sequence.executable, stride(sequence.executable)
    sequence.place([token], position)
    sequence.run(("begin", 1))
    readings: deque[tuple[PendingArray, int]] = deque()
    launched = given = 0
    while given < steps:
        while launched < steps and len(readings) < MAX_READS_IN_FLIGHT and not (readings and readings[0][0].done()):
            for _ in range(min(apart, steps - launched)):
                sequence.run(("decode", 1))
                launched += 1
            readings.append((executable.read_async("token_ring"), launched))
        reading, reached = readings.popleft()
        ring = reading.wait()
        while given < reached:
            given += 1
            yield chosen(int(ring[0, (position + given) % ring.shape[1]]), "decode", position + given - 1)


def host_fed(sequence: PagedSequence, token: int, position: int, steps: int) -> Iterator[int]:
    """Ids after `token` at `position`; each step waits for the one before. Raises UnusableLogits."""
    executable = sequence.executable
    begins = "begin" in executable.manifest.programs
    for step in range(steps):
        sequence.place([token], position + step)
        if begins:
            sequence.run(("begin", 1))
        sequence.run(("decode", 1))
        token = chosen(int(executable.read("next_token")[0]), "decode", position + step)
        yield token
