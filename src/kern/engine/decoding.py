"""Greedy decoding as a stream of token ids; each token goes to the next step on the device or through the host."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from kern.contracts.text import READ_EVERY
from kern.engine.choices import chosen
from kern.engine.sequence import PagedSequence
from kern.runtime.arrays import PendingArray
from kern.runtime.executable import Executable

MAX_READS_IN_FLIGHT: Final = 4
"""Reads that may be in flight. Their steps are wasted where the text ends."""


def steps_per_read(executable: Executable) -> int:
    """Decode steps, or rounds, per read of their tokens."""
    return READ_EVERY if executable.device.asynchronous else 1


def feeds_itself(executable: Executable) -> bool:
    """Whether each decode step reads its token on the device, from the step before it."""
    return "begin" in executable.manifest.programs


def decode(sequence: PagedSequence, token: int, position: int, steps: int) -> Iterator[int]:
    """`steps` ids after `token` at `position`. Raises UnusableLogits."""
    ids = _on_device if feeds_itself(sequence.executable) else _through_host
    return ids(sequence, token, position, steps)


def _on_device(sequence: PagedSequence, token: int, position: int, steps: int) -> Iterator[int]:
    """Each step reads its token on the device, from the step before it.

    While the device is busy, steps are launched ahead of the tokens that have been read, never more than `steps`. Each
    advances by one position; the token at position p is written to the ring at p modulo its size.
    """
    executable, per_read = sequence.executable, steps_per_read(sequence.executable)
    sequence.write_inputs([token], position)
    sequence.run(("begin", 1))
    reads: deque[tuple[PendingArray, int]] = deque()
    launched = given = 0
    while given < steps:
        while launched < steps and len(reads) < MAX_READS_IN_FLIGHT and not (reads and reads[0][0].done()):
            for _ in range(min(per_read, steps - launched)):
                sequence.run(("decode", 1))
                launched += 1
            reads.append((executable.read_async("token_ring"), launched))
        read, reached = reads.popleft()
        ring = read.wait()
        while given < reached:
            given += 1
            yield chosen(int(ring[0, (position + given) % ring.shape[1]]), "decode", position + given - 1)


def _through_host(sequence: PagedSequence, token: int, position: int, steps: int) -> Iterator[int]:
    """The host reads each token and passes it to the next step."""
    for step in range(steps):
        sequence.write_inputs([token], position + step)
        sequence.run(("decode", 1))
        token = chosen(int(sequence.executable.read("next_token")[0]), "decode", position + step)
        yield token
