"""Speculative decoding as a stream of token ids, in rounds of draft tokens and their verification."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kern.contracts.text import round_calls
from kern.engine.choices import NO_TOKEN
from kern.engine.decoding import steps_per_read
from kern.engine.schedule import Chosen, Member
from kern.engine.sequence import PagedSequence
from kern.manifest.errors import KernError, variant
from kern.runtime.arrays import PendingArray

BEGIN: Final = ("begin_spec", 1)


Disagreement = variant(KernError, "draft-disagreement", "A round accepted a number of drafts that no round can.")


@dataclass(frozen=True, slots=True)
class _Read:
    """A read that was requested after `reached` rounds had been launched."""

    ring: PendingArray
    accepted: PendingArray
    reached: int


def speculate(sequence: PagedSequence, rows: int, member: Member, accepted: list[int]) -> Iterator[Chosen]:
    """The ids of `member` in rounds of `rows` rows, up to its end, or up to where no further round fits.

    The state of all its ids but the last must be computed. The number of draft tokens that each round accepts is
    appended to `accepted` before the round's ids are returned. Raises Disagreement for a number that is not possible.
    """
    for ids in _rounds(sequence, rows, member.ids[-1], len(member.ids) - 1, member.end - len(member.ids)):
        accepted.append(len(ids) - 1)
        for id in ids[: member.end - len(member.ids)]:
            yield member.next(id, "verify")
            if member.over or id == NO_TOKEN:
                return
    member.computed = len(member.ids) - 1


def _rounds(sequence: PagedSequence, rows: int, token: int, position: int, steps: int) -> Iterator[tuple[int, ...]]:
    """The ids of each round: the accepted draft tokens, then the target model's own choice after them.

    Rounds follow until they have returned `steps` ids or no further round fits: a round needs a position for each of
    its rows. They are launched ahead of the tokens that have been read; each begins on the device where the one before
    it ended. One fewer than the token ring holds may be in flight, so that no token is overwritten before it is read. A
    round is launched only if it fits even where all rounds before it accept every draft token. Rounds in flight when
    the text ends are wasted.
    """
    executable, capacity, end = sequence.executable, sequence.capacity, position + steps
    per_read, most = _ahead(sequence, rows)
    sequence.write_inputs([token], position)
    sequence.run(BEGIN)
    reads: deque[_Read] = deque()
    launched = taken = 0
    while position < end:
        while not (reads and reads[0].accepted.done()):
            room = min((capacity - position) // rows, end - position, most) - (launched - taken)
            if room < 1:
                break
            for _ in range(min(room, per_read)):
                sequence.run(*round_calls(rows))
                launched += 1
            reads.append(_Read(executable.read_async("token_ring"), executable.read_async("accepted"), launched))
        if not reads:
            return
        read = reads.popleft()
        ring, accepted = read.ring.wait()[0], read.accepted.wait()[0]
        while taken < read.reached:
            count = possible(int(accepted[taken % len(accepted)]), rows) + 1
            yield tuple(int(ring[(position + index) % len(ring)]) for index in range(1, count + 1))
            position += count
            taken += 1


def possible(accepted: int, rows: int) -> int:
    """The draft tokens that a round accepted. An impossible number would make every later read wrong."""
    if not 0 <= accepted < rows:
        raise Disagreement(
            f"carry accepted says that a round of {rows - 1} drafts accepted {accepted} of them",
            "check the kernels of the programs begin_spec and accept",
        )
    return accepted


def _ahead(sequence: PagedSequence, rows: int) -> tuple[int, int]:
    """Rounds per read, and the maximum number in flight, which is a multiple of it."""
    ring = sequence.executable.manifest.buffers["token_ring"].shape[1]
    assert isinstance(ring, int)
    most = ring // rows - 1
    per_read = min(steps_per_read(sequence.executable), most)
    return per_read, most // per_read * per_read
