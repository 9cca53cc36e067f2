"""Speculative decoding as a stream of rounds: drafts, their verification, and how many of them were right."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from kern.contracts.text import round_calls
from kern.engine.choices import NO_TOKEN, chosen
from kern.engine.decoding import Decode, stride
from kern.engine.sequence import PagedSequence
from kern.manifest.errors import KernError, variant
from kern.runtime.arrays import PendingArray

Driver = Literal["device", "host"]
"""Who decides what a round accepts, and so where the next begins."""

BEGIN: Final = ("begin_spec", 1)
_SUSPECTS: Final = "look at the kernels of programs begin_spec and accept"


Disagreement = variant(KernError, "draft-disagreement", "The device reports a round that contradicts its own drafts.")


@dataclass(frozen=True, slots=True)
class Round:
    """The ids that a round gives: the drafts that were right, then the target's own choice after them."""

    ids: tuple[int, ...]

    @property
    def accepted(self) -> int:
        """The drafts that were right."""
        return len(self.ids) - 1


Rounds = Callable[[PagedSequence, int, int, int, int], Iterator[Round]]
"""Sequence, rows of a round, token, its position, ids wanted → rounds, until these are given or no round has room.

The token's state comes to stand at its position in the first round. A round of n rows needs n places from there.
"""


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was asked for after `reached` rounds had been launched."""

    ring: PendingArray
    accepted: PendingArray
    reached: int


def device_driven(sequence: PagedSequence, rows: int, token: int, position: int, steps: int) -> Iterator[Round]:
    """Rounds that are launched ahead of what has been read, each taking its place from the one before on the device.

    As many are under way as the ring of tokens holds, one left out: what a reading finds there is whole. Those
    that are launched before the last wanted id is known are wasted, and each is launched only where it has room
    even if all before it accept everything. Raises Disagreement for a round that accepts what no round can.
    """
    executable, capacity, end = sequence.executable, sequence.capacity, position + steps
    apart, most = _ahead(sequence, rows)
    sequence.place([token], position)
    sequence.run(BEGIN)
    readings: deque[_Reading] = deque()
    launched = read = 0
    while position < end:
        while not (readings and readings[0].accepted.done()):
            under_way = launched - read
            room = min((capacity - position) // rows, end - position, most) - under_way
            if room < 1:
                break
            for _ in range(min(room, apart)):
                sequence.run(*round_calls(rows))
                launched += 1
            readings.append(_Reading(executable.read_async("token_ring"), executable.read_async("accepted"), launched))
        if not readings:
            return
        reading = readings.popleft()
        ring, accepted = reading.ring.wait()[0], reading.accepted.wait()[0]
        while read < reading.reached:
            count = _possible(int(accepted[read % len(accepted)]), rows) + 1
            yield Round(tuple(int(ring[(position + place) % len(ring)]) for place in range(1, count + 1)))
            position += count
            read += 1


def _possible(accepted: int, rows: int) -> int:
    """What a round accepted, held against what it drafts: a count that is none would lead the reading astray."""
    if not 0 <= accepted < rows:
        raise Disagreement(
            f"a round of {rows - 1} drafts accepted {accepted} of them, by the carry accepted", _SUSPECTS
        )
    return accepted


def _ahead(sequence: PagedSequence, rows: int) -> tuple[int, int]:
    """Rounds between two readings, and the most that may be under way, a multiple of them."""
    ring = sequence.executable.manifest.buffers["token_ring"].shape[1]
    assert isinstance(ring, int)
    most = ring // rows - 1
    apart = min(stride(sequence.executable), most)
    return apart, most // apart * apart


def host_driven(sequence: PagedSequence, rows: int, token: int, position: int, steps: int) -> Iterator[Round]:
    """Rounds whose drafts and predictions the host reads and compares itself, program by program.

    Raises Disagreement where the device does not go on from what was accepted here.
    """
    executable, end = sequence.executable, position + steps
    precompute, draft, verify, accept = round_calls(rows)
    sequence.place([token], position)
    sequence.run(BEGIN)
    while position < end and position + rows <= sequence.capacity:
        _require_at(sequence, token, position)
        sequence.run(precompute)
        sequence.run(draft)
        drafts = executable.read("round_tokens")[1:rows]
        sequence.run(verify)
        predicted = executable.read("predicted")[:rows]
        count = agreement(drafts, predicted)
        sequence.run(accept)
        ids = (*map(int, drafts[:count]), int(predicted[count]))
        token, position = ids[-1], position + len(ids)
        yield Round(ids)


def agreement(drafts: NDArray[np.int64], predicted: NDArray[np.int64]) -> int:
    """How many of the drafts, from the first, are what the target predicts there, [n] and [n + 1] ids.

    No draft agrees with a prediction of NO_TOKEN.
    """
    there = predicted[: len(drafts)]
    wrong = np.flatnonzero((drafts != there) | (there == NO_TOKEN))
    return int(wrong[0]) if len(wrong) else len(drafts)


def _require_at(sequence: PagedSequence, token: int, position: int) -> None:
    read = sequence.executable.read
    found = int(read("round_tokens")[0]), int(read("step_position")[0])
    if found != (token, position):
        raise Disagreement(
            f"the device's round begins with token {found[0]} at position {found[1]}, "
            f"by its drafts and predictions it is token {token} at position {position}",
            _SUSPECTS,
        )


def speculative(rounds: Rounds, rows: int, rest: Decode, accepted: list[int]) -> Decode:
    """Rounds as a stream of ids; `rest` decodes those for which no round has room.

    The drafts that each round accepts are appended to `accepted` before its ids are given. Raises UnusableLogits.
    """

    def decode(sequence: PagedSequence, token: int, position: int, steps: int) -> Iterator[int]:
        given = 0
        for each in rounds(sequence, rows, token, position, steps):
            accepted.append(each.accepted)
            for id in each.ids[: steps - given]:
                token = chosen(id, "verify", position + given)
                given += 1
                yield token
            if given == steps:
                return
        yield from rest(sequence, token, position + given, steps - given)

    return decode
