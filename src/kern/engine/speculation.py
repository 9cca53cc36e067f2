"""Speculative decoding as a stream of token ids: rounds of drafts, and how many of them were right."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kern.contracts.text import round_calls
from kern.engine.choices import chosen
from kern.engine.decoding import decode, stride
from kern.engine.sequence import PagedSequence
from kern.manifest.errors import KernError, variant
from kern.runtime.arrays import PendingArray

BEGIN: Final = ("begin_spec", 1)


Disagreement = variant(KernError, "draft-disagreement", "A round accepted a number of drafts that no round can.")


@dataclass(frozen=True, slots=True)
class _Read:
    """What was asked for after `reached` rounds had been launched."""

    ring: PendingArray
    accepted: PendingArray
    reached: int


def speculate(
    sequence: PagedSequence, rows: int, token: int, position: int, steps: int, accepted: list[int]
) -> Iterator[int]:
    """`steps` ids after `token` at `position`, in rounds of `rows` rows; plain steps where no round has room.

    The drafts that each round accepts are appended to `accepted` before its ids are given. Raises UnusableLogits, and
    Disagreement for a round that accepts what no round can.
    """
    given = 0
    for ids in _rounds(sequence, rows, token, position, steps):
        accepted.append(len(ids) - 1)
        for id in ids[: steps - given]:
            token = chosen(id, "verify", position + given)
            given += 1
            yield token
        if given == steps:
            return
    yield from decode(sequence, token, position + given, steps - given)


def _rounds(sequence: PagedSequence, rows: int, token: int, position: int, steps: int) -> Iterator[tuple[int, ...]]:
    """The ids of each round: the drafts that were right, then the target's own choice after them.

    Rounds come until they have given `steps` ids or none has room: a round needs as many positions as it has rows. They
    are launched ahead of what has been read, each beginning on the device where the one before it ended. As many are in
    flight as the ring of tokens holds, less one, so that what a read finds there is whole. Those that are launched
    before the last wanted id is known are wasted, and each is launched only where it has room even if all before it
    accept everything.
    """
    executable, capacity, end = sequence.executable, sequence.capacity, position + steps
    apart, most = _ahead(sequence, rows)
    sequence.place([token], position)
    sequence.run(BEGIN)
    reads: deque[_Read] = deque()
    launched = taken = 0
    while position < end:
        while not (reads and reads[0].accepted.done()):
            room = min((capacity - position) // rows, end - position, most) - (launched - taken)
            if room < 1:
                break
            for _ in range(min(room, apart)):
                sequence.run(*round_calls(rows))
                launched += 1
            reads.append(_Read(executable.read_async("token_ring"), executable.read_async("accepted"), launched))
        if not reads:
            return
        read = reads.popleft()
        ring, accepted = read.ring.wait()[0], read.accepted.wait()[0]
        while taken < read.reached:
            count = _possible(int(accepted[taken % len(accepted)]), rows) + 1
            yield tuple(int(ring[(position + index) % len(ring)]) for index in range(1, count + 1))
            position += count
            taken += 1


def _possible(accepted: int, rows: int) -> int:
    """The drafts that a round accepted; a number that is not possible would make every later read wrong."""
    if not 0 <= accepted < rows:
        raise Disagreement(
            f"a round of {rows - 1} drafts accepted {accepted} of them, by the carry accepted",
            "look at the kernels of programs begin_spec and accept",
        )
    return accepted


def _ahead(sequence: PagedSequence, rows: int) -> tuple[int, int]:
    """Rounds between two reads, and the most that may be in flight, a multiple of them."""
    ring = sequence.executable.manifest.buffers["token_ring"].shape[1]
    assert isinstance(ring, int)
    most = ring // rows - 1
    apart = min(stride(sequence.executable), most)
    return apart, most // apart * apart
