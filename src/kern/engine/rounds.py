"""Rounds of speculation of several sequences at once, each accepting its own number of draft tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kern.contracts.text import PAGE, PAGES, SEQS, TOKENS, most_rounds, round_calls, row_buckets, wide_rounds
from kern.engine.calls import bucket
from kern.engine.schedule import pages_of
from kern.engine.speculation import BEGIN, possible
from kern.manifest.errors import KernError, variant
from kern.runtime.executable import Executable
from kern.runtime.graph import ExecutableGraph

NoRoom = variant(KernError, "no-room", "A sequence has no room for another round, or there are too many at once.")


class Rounds:
    """Rounds of several sequences of an executable at once; each has a slot, and accepts its own number of drafts.

    The slots of a call may be others than those of the one before, in any order; what persists of a sequence is found
    by its slot. A call has as many rows as the next bucket, and those without a sequence change nothing.
    """

    def __init__(self, executable: Executable, rows: int, capacity: int, *, eager: bool = False) -> None:
        """`rows` are those of a round, of a manifest that was checked. Without `eager`, rounds replay graphs."""
        self.executable, self.rows, self.capacity = executable, rows, capacity
        self.most = min(most_rounds(executable.manifest), executable.sequences)
        self._pages, self._eager = pages_of(capacity), eager
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
        seqs = bucket(row_buckets(self.most), len(tables))
        slots, pages = np.full(seqs, -1, np.int32), np.zeros((seqs, self._pages), np.int32)
        for row, (slot, table) in enumerate(tables.items()):
            slots[row], pages[row, : len(table)] = slot, table
        values = self._values(seqs, seqs)
        self.executable.write("row_slots", slots, values)
        self.executable.write("block_table", pages, values)
        for _ in range(rounds):
            self._launch(seqs)
        reads = [self.executable.read_async(name) for name in ("token_ring", "accepted")]
        tokens, accepted = (read.wait() for read in reads)
        return {slot: [self._taken(slot, tokens[slot], accepted[slot]) for _ in range(rounds)] for slot in tables}

    def _taken(self, slot: int, ring: NDArray[np.int64], accepted: NDArray[np.int32]) -> tuple[int, ...]:
        """The ids of a slot's next round."""
        position, rounds = self._at[slot]
        count = possible(int(accepted[rounds % len(accepted)]), self.rows) + 1
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
