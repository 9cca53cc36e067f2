"""Speculative decoding as a stream of token ids, in rounds of draft tokens and their verification."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kern.contracts.text import PAGE, PAGES, SEQS, TOKENS, most_rounds, round_calls, wide_rounds
from kern.engine.choices import chosen
from kern.engine.decoding import decode, steps_per_read
from kern.engine.sequence import PagedSequence
from kern.manifest.errors import KernError, variant
from kern.runtime.arrays import PendingArray
from kern.runtime.executable import Executable
from kern.runtime.graph import ExecutableGraph

BEGIN: Final = ("begin_spec", 1)
ROW_COUNTS: Final = (1, 2, 4, 8)
"""The numbers of sequences that rounds are called with, but for the most."""


Disagreement = variant(KernError, "draft-disagreement", "A round accepted a number of drafts that no round can.")
NoRoom = variant(KernError, "no-room", "A sequence has no room for another round, or there are too many at once.")


@dataclass(frozen=True, slots=True)
class _Read:
    """A read that was requested after `reached` rounds had been launched."""

    ring: PendingArray
    accepted: PendingArray
    reached: int


def speculate(
    sequence: PagedSequence, rows: int, token: int, position: int, steps: int, accepted: list[int]
) -> Iterator[int]:
    """`steps` ids after `token` at `position`, in rounds of `rows` rows; in plain steps where a round does not fit.

    The number of draft tokens that each round accepts is appended to `accepted` before the round's ids are returned.
    Raises UnusableLogits, and Disagreement for a number that is not possible.
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
            count = _possible(int(accepted[taken % len(accepted)]), rows) + 1
            yield tuple(int(ring[(position + index) % len(ring)]) for index in range(1, count + 1))
            position += count
            taken += 1


class Rounds:
    """Rounds of several sequences of an executable at once; each has a slot, and accepts its own number of drafts.

    The slots of a call may be others than those of the one before, in any order; what persists of a sequence is found
    by its slot. A call has as many rows as the next of ROW_COUNTS, and those without a sequence change nothing.
    """

    def __init__(self, executable: Executable, rows: int, capacity: int, *, eager: bool = False) -> None:
        """`rows` are those of a round, of a manifest that was checked. Without `eager`, rounds replay graphs."""
        self.executable, self.rows, self.capacity = executable, rows, capacity
        self.most = min(most_rounds(executable.manifest), executable.sequences)
        self._pages, self._eager = -(-capacity // PAGE), eager
        self._graphs: dict[int, ExecutableGraph] = {}
        self._at: dict[int, tuple[int, int]] = {}  # of each slot its anchor's position, and its rounds so far

    def begin(self, anchors: Mapping[int, tuple[int, int]]) -> None:
        """Give slots a token and its position each; what comes before it must be in the states already."""
        values = self._values(len(anchors), len(anchors))
        for name, type, given in (
            ("row_slots", np.int32, anchors.keys()),
            ("token_ids", np.int64, (token for token, _ in anchors.values())),
            ("positions", np.int64, (position for _, position in anchors.values())),
        ):
            self.executable.write(name, np.fromiter(given, type), values)
        self.executable.run(BEGIN[0], values)
        self._at |= {slot: (position, 0) for slot, (_, position) in anchors.items()}

    def fits(self, slot: int, pages: int, rounds: int = 1) -> bool:
        """Whether a sequence with so many pages has room for rounds that accept every draft token."""
        return self._at[slot][0] + rounds * self.rows <= min(self.capacity, pages * PAGE)

    def run(self, tables: Mapping[int, Sequence[int]], rounds: int = 1) -> dict[int, list[tuple[int, ...]]]:
        """The ids that each of some rounds gives each of these slots, whose pages are given.

        Rounds follow each other on the device; there may be as many as the token ring holds. Raises NoRoom.
        """
        ring = self.executable.manifest.buffers["token_ring"].shape[-1]
        assert isinstance(ring, int)
        if not 1 <= len(tables) <= self.most or not 1 <= rounds <= ring // self.rows:
            raise NoRoom(
                f"{rounds} rounds of {len(tables)} sequences are too many at once",
                f"run at most {ring // self.rows} rounds of at most {self.most} sequences",
            )
        for slot, table in tables.items():
            if not self.fits(slot, len(table), rounds):
                raise NoRoom(
                    f"the sequence in slot {slot} has no room for {rounds} rounds of {self.rows} tokens",
                    "finish it with the programs begin and decode",
                )
        seqs = next(count for count in (*ROW_COUNTS, self.most) if len(tables) <= count)
        seqs = min(seqs, self.most)
        slots, pages = np.full(seqs, -1, np.int32), np.zeros((seqs, self._pages), np.int32)
        for row, (slot, table) in enumerate(tables.items()):
            slots[row], pages[row, : len(table)] = slot, table
        values = self._values(seqs, seqs)
        self.executable.write("row_slots", slots, values)
        self.executable.write("block_table", pages, values)
        for _ in range(rounds):
            self._launch(seqs)
        read = _Read(self.executable.read_async("token_ring"), self.executable.read_async("accepted"), rounds)
        tokens, accepted = read.ring.wait(), read.accepted.wait()
        return {slot: [self._taken(slot, tokens[slot], accepted[slot]) for _ in range(rounds)] for slot in tables}

    def _taken(self, slot: int, ring: NDArray[np.int64], accepted: NDArray[np.int32]) -> tuple[int, ...]:
        """The ids of a slot's next round."""
        position, rounds = self._at[slot]
        count = _possible(int(accepted[rounds % len(accepted)]), self.rows) + 1
        self._at[slot] = position + count, rounds + 1
        return tuple(int(ring[(position + index) % len(ring)]) for index in range(1, count + 1))

    def _launch(self, seqs: int) -> None:
        calls = round_calls(self.rows, seqs, wide=wide_rounds(self.executable.manifest, seqs))
        sized = [(program, self._values(tokens, seqs)) for program, tokens in calls]
        if self._eager:
            for program, values in sized:
                self.executable.run(program, values)
            return
        if seqs not in self._graphs:
            self._graphs[seqs] = self.executable.graph(sized)
        self._graphs[seqs].launch()

    def _values(self, tokens: int, seqs: int) -> dict[str, int]:
        return {TOKENS.sym: tokens, SEQS.sym: seqs, PAGES.sym: self._pages}


def _possible(accepted: int, rows: int) -> int:
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
