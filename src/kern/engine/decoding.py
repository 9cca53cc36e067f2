"""The decoding loop, for one sequence and for many: calls are launched ahead of the tokens that have been read."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from kern.contracts.text import READ_EVERY
from kern.engine.schedule import Chosen, Member, Plan, Schedule
from kern.runtime.arrays import Array
from kern.runtime.executable import Executable

MAX_READS_IN_FLIGHT: Final = 4
"""Reads that may be in flight. Their steps are wasted for a sequence whose text ends."""


def steps_per_read(executable: Executable) -> int:
    """Decode steps, or rounds, per read of their tokens."""
    return READ_EVERY if executable.device.asynchronous else 1


class Ring(Protocol):
    """The token ring as it was when it was requested, i64 [slots, R]: id number i of a sequence is at i modulo R."""

    def done(self) -> bool:
        """Whether `wait` would return at once."""

    def wait(self) -> Array:
        """The ring, once it has arrived."""


class Launcher(Protocol):
    """What launches the calls of a schedule; with `ahead`, before the tokens of the calls before have been read."""

    ahead: bool

    def launch(self, plan: Plan) -> str:
        """Launch a plan; returns the program that chooses its tokens."""

    def read(self) -> Ring:
        """Request the token ring."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A read of the tokens that a plan chooses: of each member its slot and the number of its first token."""

    ring: Ring
    program: str
    ticks: int
    rows: tuple[tuple[Member, int, int], ...]

    def tokens(self) -> Iterator[Chosen]:
        """The tokens in the order in which they were chosen, once they have arrived."""
        ring = self.ring.wait()
        for tick in range(self.ticks):
            for member, slot, first in self.rows:
                if not member.over:
                    yield member.next(int(ring[slot, (first + tick) % ring.shape[1]]), self.program)


def decode(launcher: Launcher, schedule: Schedule) -> Iterator[Chosen]:
    """The tokens of the members of `schedule`, in the order in which they arrive, until it has no more calls.

    While the device is busy, calls are launched ahead of the tokens that have been read. The caller must end a member
    whose text ends early, or whose token is none; tokens that it has in flight are dropped.
    """
    reads: deque[_Read] = deque()
    most = MAX_READS_IN_FLIGHT if launcher.ahead else 1
    while True:
        while len(reads) < most and not (reads and reads[0].ring.done()):
            plan = schedule.plan()
            if plan is None:
                break
            rows = tuple((part.member, part.member.slot, part.start + part.count) for part in plan.parts if part.chosen)
            program = launcher.launch(plan)
            if rows:
                reads.append(_Read(launcher.read(), program, plan.ticks, rows))
        if not reads:
            return
        yield from reads.popleft().tokens()
