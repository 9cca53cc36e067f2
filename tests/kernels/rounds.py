"""What a round of speculation leaves for the next, in plain Python: as a reference for the kernels."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kern.contracts.text import PAGE
from kernels.harness import poison

RING = 64
I32, I64 = np.int32, np.int64
MASK = 5


@dataclass
class Round:
    """The carries of `seqs` sequences with `block` drafts each, unwritten but for the ring."""

    seqs: int
    block: int
    pages: int
    table: np.ndarray
    ring: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rows = self.seqs * (self.block + 1)
        self.tokens, self.positions, self.slots = (poison((rows,), I64) for _ in range(3))
        self.length, self.starts = poison((self.seqs,), I32), poison((self.seqs + 1,), I32)
        self.block_ids = poison((self.seqs * self.block,), I64)
        self.block_length, self.block_starts = poison((self.seqs,), I32), poison((self.seqs + 1,), I32)
        self.feature_positions, self.feature_slots = poison((rows,), I64), poison((rows,), I64)
        self.accepted, self.count = poison((self.seqs, RING), I32), poison((self.seqs,), I64)
        self.position, self.ring = poison((self.seqs,), I64), np.full((self.seqs, RING), -1, I64)

    @property
    def arguments(self) -> dict[str, np.ndarray | int]:
        """What both kernels take."""
        return {
            "round_tokens": self.tokens,
            "round_positions": self.positions,
            "round_slots": self.slots,
            "round_length": self.length,
            "block_ids": self.block_ids,
            "block_length": self.block_length,
            "feature_positions": self.feature_positions,
            "feature_slots": self.feature_slots,
            "accepted": self.accepted,
            "round_count": self.count,
            "step_position": self.position,
            "token_ring": self.ring,
            "block_table": self.table,
            "seqs": self.seqs,
            "pages": self.pages,
            "ring": RING,
            "block": self.block,
        }

    def begin(self, run, anchors: np.ndarray, positions: np.ndarray) -> None:
        starts = {"round_starts": self.starts, "block_starts": self.block_starts}
        run("begin_spec", token_ids=anchors, positions=positions, mask=MASK, **starts, **self.arguments)

    def draft(self, drafts: np.ndarray) -> None:
        """What the draft model would write: [seqs, block]."""
        self.tokens.reshape(self.seqs, -1)[:, 1:] = drafts

    def accept(self, run, predicted: np.ndarray) -> None:
        run("accept", predicted=predicted, **self.arguments)

    def check(self, texts: list[list[int]], rounds: list[list[int]], verified: list[list[int]] | None) -> None:
        """Everything follows from the texts, whose last tokens are the anchors, and the drafts taken each round.

        `verified`: the positions of the accepted rows before; None: there was no round.
        """
        for s, text in enumerate(texts):
            start, rows, room = len(text) - 1, self.block + 1, self.pages * PAGE
            at = [start + i for i in range(rows)]
            own = slice(s * rows, (s + 1) * rows)
            assert self.tokens[own][0] == text[-1]
            assert self.positions[own].tolist() == [min(p, room - 1) for p in at]
            assert self.slots[own].tolist() == [self.slot(s, p) for p in at]
            assert self.length[s] == start + rows
            assert self.block_ids.reshape(self.seqs, -1)[s].tolist() == [text[-1]] + [MASK] * (self.block - 1)
            assert self.block_length[s] == start + self.block
            assert self.position[s] == start
            assert self.count[s] == len(rounds[s])
            counts = [0] * RING
            for i, taken in enumerate(rounds[s]):
                counts[i % RING] = taken
            assert self.accepted[s].tolist() == counts
            for p in range(max(0, start - RING + 1), start + 1):
                assert self.ring[s, p % RING] in (text[p], -1)
            standing = [] if verified is None else [self.slot(s, p) for p in verified[s]]
            assert self.feature_slots[own].tolist() == standing + [-1] * (rows - len(standing))
            if verified is not None:
                first = verified[s][0]
                assert self.feature_positions[own].tolist() == [min(first + i, room - 1) for i in range(rows)]
        assert self.starts.tolist() == [s * (self.block + 1) for s in range(self.seqs + 1)]
        assert self.block_starts.tolist() == [s * self.block for s in range(self.seqs + 1)]

    def slot(self, s: int, p: int) -> int:
        return int(self.table[s, p // PAGE]) * PAGE + p % PAGE if p < self.pages * PAGE else -1


def play(run, rng: np.random.Generator, seqs: int, block: int, pages: int, starts: list[int], count: int) -> None:
    """Rounds with random drafts, a random number of them right, checked after each; some choices are -1, no token."""
    table = rng.permutation(100)[: seqs * pages].reshape(seqs, pages).astype(I32)
    state = Round(seqs, block, pages, table)
    texts = [rng.integers(10, 1000, start + 1).tolist() for start in starts]
    state.begin(run, np.array([text[-1] for text in texts]), np.array(starts))
    rounds: list[list[int]] = [[] for _ in texts]
    state.check(texts, rounds, None)
    for _ in range(count):
        predicted = rng.integers(10, 1000, (seqs, block + 1))
        drafts, verified = predicted[:, :block].copy(), []
        for s in range(seqs):
            taken = int(rng.integers(0, block + 1))
            if taken < block and rng.integers(0, 4) == 0:
                drafts[s, taken] = predicted[s, taken] = -1  # no token, by the draft and by the target
            elif taken < block:
                drafts[s, taken] += 1  # what comes after may be right again, to no avail
            verified.append([len(texts[s]) - 1 + i for i in range(taken + 1)])
            texts[s] += predicted[s, : taken + 1].tolist()
            rounds[s].append(taken)
        state.draft(drafts)
        state.accept(run, predicted.reshape(-1))
        state.check(texts, rounds, verified)
        for s, text in enumerate(texts):
            written = text[starts[s] :][-RING:]
            first = len(text) - len(written)
            assert [state.ring[s, (first + i) % RING] for i in range(len(written))] == written
