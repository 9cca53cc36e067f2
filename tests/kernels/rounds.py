"""What a round of speculation lays and leaves, in plain Python: as a reference for the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kern.contracts.text import PAGE
from kernels.choices import chosen
from kernels.harness import poison

RING = 64
I32, I64 = np.int32, np.int64
MASK = 5
UNTOUCHED = -77
"""What a slot that takes no part has in all its carries."""


@dataclass
class Text:
    """One sequence: its ids, the last of them the anchor, and the drafts taken in each round."""

    ids: list[int]
    taken: list[int] = field(default_factory=list)
    first: int = field(init=False)

    def __post_init__(self) -> None:
        self.first = len(self.ids) - 1

    @property
    def start(self) -> int:
        """The anchor's position."""
        return len(self.ids) - 1


class Slots:
    """The carries of `slots` sequences, of which each has a row of `tables`, or none yet."""

    def __init__(self, rng: np.random.Generator, slots: int, block: int, pages: int) -> None:
        self.rng, self.block, self.pages = rng, block, pages
        self.tables = rng.permutation(slots * pages + 9)[: slots * pages].reshape(slots, pages).astype(I32)
        self.token, self.position, self.count = (poison((slots,), I64) for _ in range(3))
        self.ring, self.accepted = poison((slots, RING), I64), poison((slots, RING), I32)
        self.texts: dict[int, Text] = {}

    @property
    def carries(self) -> dict[str, np.ndarray]:
        return {
            "slot_token": self.token,
            "slot_position": self.position,
            "token_ring": self.ring,
            "accepted": self.accepted,
            "round_count": self.count,
        }

    def begin(self, run, rows: Sequence[int], starts: Sequence[int]) -> None:
        """New texts in these slots, their anchors at `starts`; a row of -1 is padding."""
        ids = [self.rng.integers(10, 1000, start + 1).tolist() for start in starts]
        anchors = np.array([each[-1] for each in ids], I64)
        given = {"row_slots": np.array(rows, I32), "token_ids": anchors, "positions": np.array(starts, I64)}
        for slot, each in zip(rows, ids, strict=True):
            if slot >= 0:
                self.texts[slot] = Text(each)
                self.ring[slot] = UNTOUCHED
        run("begin_spec", **self.carries, **given, seqs=len(rows), ring=RING)
        self.check()

    def round(self, run, rows: Sequence[int]) -> None:
        """A round of these slots with random drafts, a random number of them right; some choices are -1, no token."""
        seqs, block, of_slots = len(rows), self.block, np.array(rows, I32)
        laid = {
            **{name: poison((seqs * (block + 1),), I64) for name in ("round_tokens", "round_positions", "round_slots")},
            **{name: poison((seqs * block,), I64) for name in ("block_ids", "block_positions", "block_slots")},
            **{name: poison((seqs,), I32) for name in ("round_length", "block_length")},
            **{name: poison((seqs + 1,), I32) for name in ("round_starts", "block_starts")},
        }
        table = np.array([self.tables[slot] if slot >= 0 else np.zeros(self.pages) for slot in rows], I32)
        anchors = {"slot_token": self.token, "slot_position": self.position, "row_slots": of_slots}
        run("lay_round", **laid, **anchors, block_table=table, seqs=seqs, pages=self.pages, block=block, mask=MASK)
        self._check_laid(rows, laid)
        self.check()

        predicted = self.rng.integers(10, 1000, (seqs, block + 1))
        tokens = laid["round_tokens"].reshape(seqs, -1)
        tokens[:, 1:] = predicted[:, :block]
        for row, slot in enumerate(rows):
            taken = int(self.rng.integers(0, block + 1))
            if taken < block and self.rng.integers(0, 4) == 0:
                tokens[row, 1 + taken] = predicted[row, taken] = -1  # no token, by the draft and by the target
            elif taken < block:
                tokens[row, 1 + taken] += 1  # what comes after may be right again, to no avail
            if slot >= 0:
                self.texts[slot].ids += predicted[row, : taken + 1].tolist()
                self.texts[slot].taken.append(taken)
        given = {name: laid[name].copy() for name in ("round_tokens", "round_slots")}
        rest = {"predicted": predicted.reshape(-1), "row_slots": of_slots}
        run("accept", **self.carries, **given, **rest, seqs=seqs, ring=RING, block=block)
        self.check()
        slots = given["round_slots"].reshape(seqs, -1)
        for row, slot in enumerate(rows):
            kept = self.texts[slot].taken[-1] + 1 if slot >= 0 else 0
            assert slots[row, :kept].tolist() == laid["round_slots"].reshape(seqs, -1)[row, :kept].tolist()
            assert slots[row, kept:].tolist() == [-1] * (block + 1 - kept)

    def check(self) -> None:
        """Everything that persists follows from the texts; a slot without one is as it was."""
        for slot in range(len(self.token)):
            text = self.texts.get(slot)
            if text is None:
                assert (self.token[slot], self.position[slot], self.count[slot]) == (UNTOUCHED,) * 3
                assert (self.ring[slot] == UNTOUCHED).all()
                assert (self.accepted[slot] == UNTOUCHED).all()
                continue
            assert (self.token[slot], self.position[slot]) == (text.ids[-1], text.start)
            assert self.count[slot] == len(text.taken)
            counts, ring = [0] * RING, [UNTOUCHED] * RING
            for place, taken in enumerate(text.taken):
                counts[place % RING] = taken
            for place in range(text.first, len(text.ids)):
                ring[place % RING] = text.ids[place]
            assert self.accepted[slot].tolist() == counts
            assert self.ring[slot].tolist() == ring

    def _check_laid(self, rows: Sequence[int], laid: dict[str, np.ndarray]) -> None:
        block, room = self.block, self.pages * PAGE
        for row, slot in enumerate(rows):
            for of, count in (("round", block + 1), ("block", block)):
                own = slice(row * count, (row + 1) * count)
                ids, positions, slots = (
                    laid[f"{of}_{name}"][own].tolist()
                    for name in ("tokens" if of == "round" else "ids", "positions", "slots")
                )
                if slot < 0:
                    assert (ids, positions, slots) == ([MASK] * count, [0] * count, [-1] * count)
                    assert laid[f"{of}_length"][row] == 0
                    continue
                text, at = self.texts[slot], range(self.texts[slot].start, self.texts[slot].start + count)
                assert ids == [text.ids[-1]] + [MASK] * (count - 1)
                assert positions == [min(place, room - 1) for place in at]
                assert slots == [self._slot(slot, place) for place in at]
                assert laid[f"{of}_length"][row] == text.start + count
        assert laid["round_starts"].tolist() == [row * (block + 1) for row in range(len(rows) + 1)]
        assert laid["block_starts"].tolist() == [row * block for row in range(len(rows) + 1)]

    def _slot(self, slot: int, place: int) -> int:
        return int(self.tables[slot, place // PAGE]) * PAGE + place % PAGE if place < self.pages * PAGE else -1


def play(run, rng: np.random.Generator, block: int, pages: int, starts: Sequence[int], count: int) -> None:
    """Rounds of all sequences at once, in the order of their slots."""
    state = Slots(rng, len(starts), block, pages)
    state.begin(run, range(len(starts)), starts)
    for _ in range(count):
        state.round(run, range(len(starts)))


def mingle(run, rng: np.random.Generator, slots: int, block: int, count: int) -> None:
    """Rounds of some of the sequences in any order, with padding among them; others begin between rounds."""
    state = Slots(rng, slots + 2, block, pages=30)
    for _ in range(count):
        begins = [*rng.permutation(slots)[: rng.integers(0, 3)].tolist(), -1]
        state.begin(run, begins, rng.integers(0, 40, len(begins)).tolist())
        going = list(state.texts)
        rows = rng.permutation(going)[: rng.integers(0, len(going) + 1)].tolist() + [-1] * int(rng.integers(0, 3))
        if rows:
            state.round(run, rng.permutation(rows).tolist())


def check_step_of_chain(run, rng: np.random.Generator, vocabulary: int, seqs: int, rows: int) -> None:
    """`add_argmax` in each row, on a sum that may have a NaN, an infinity or a tie."""
    for row in range(rows - 1):
        before = rng.normal(size=(seqs, rows - 1, vocabulary)).astype(np.float32)
        logits, delta = before.copy(), rng.normal(size=(seqs, vocabulary)).astype(np.float32)
        delta[0, rng.integers(vocabulary)] = rng.choice([1.0, np.nan, -np.inf, 9.0])
        tokens = poison((seqs, rows), I64)
        views = {"next": tokens.reshape(-1)[row + 1 :], "logits": logits.reshape(-1)[row * vocabulary :]}
        run("add_argmax", **views, delta=delta, vocabulary=vocabulary, seqs=seqs, rows=rows)
        before[:, row] += delta
        assert np.array_equal(logits, before, equal_nan=True)
        wanted = poison((seqs, rows), I64)
        wanted[:, row + 1] = chosen(before[:, row])
        assert tokens.tolist() == wanted.tolist()
