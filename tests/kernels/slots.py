"""What the entries of the slots must do, step by step in Python, on whatever runs kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

PAGE = 16
I64, I32 = np.int64, np.int32
POISON = -77


@dataclass(frozen=True)
class Slots:
    """The carries of the slots, full of other numbers; a call changes only what it must."""

    token: np.ndarray
    position: np.ndarray
    ring: np.ndarray

    @property
    def arguments(self) -> dict[str, Any]:
        return {"slot_token": self.token, "slot_position": self.position, "token_ring": self.ring, "ring": self.size}

    @property
    def size(self) -> int:
        return int(self.ring.shape[1])

    def copy(self) -> Slots:
        return Slots(self.token.copy(), self.position.copy(), self.ring.copy())

    def keep(self, slot: int, token: int, position: int) -> None:
        self.token[slot], self.position[slot] = token, position
        self.ring[slot, position % self.size] = token

    def same(self, other: Slots) -> bool:
        return all(
            np.array_equal(a, b)
            for a, b in ((self.token, other.token), (self.position, other.position), (self.ring, other.ring))
        )


def random_slots(rng: np.random.Generator, count: int, size: int = 8, last: int = 60) -> Slots:
    """Slots with tokens, one of which is -1, at positions up to `last`."""
    token = rng.integers(0, 1000, count)
    token[rng.integers(count)] = -1
    return Slots(token, rng.integers(0, last + 1, count), rng.integers(0, 1000, (count, size)))


def random_rows(rng: np.random.Generator, seqs: int, count: int) -> np.ndarray:
    """A choice of slots in any order, and about a third padding rows."""
    rows = rng.permutation(count)[:seqs].astype(I32)
    rows = np.concatenate([rows, np.full(seqs - len(rows), -1, I32)])
    rows[rng.random(seqs) < 1 / 3] = -1
    return rows


def check_begin(run: Any, rng: np.random.Generator, seqs: int, count: int) -> None:
    slots, rows = random_slots(rng, count), random_rows(rng, seqs, count)
    ids, positions, want = rng.integers(0, 99, seqs), rng.integers(0, 99, seqs), slots.copy()
    run("begin", row_slots=rows, token_ids=ids, positions=positions, seqs=seqs, **slots.arguments)
    for row in np.flatnonzero(rows >= 0):
        want.keep(rows[row], ids[row], positions[row])
    assert slots.same(want)


def check_lay_rows(run: Any, rng: np.random.Generator, seqs: int, count: int, pages: int) -> None:
    room = pages * PAGE
    slots, rows = random_slots(rng, count, last=room + 2), random_rows(rng, seqs, count)
    table = rng.permutation(1000)[: seqs * pages].astype(I32).reshape(seqs, pages)
    token, position, place, length = (np.full(seqs, POISON, dtype) for dtype in (I64, I64, I64, I32))
    run(
        "lay_rows",
        step_token=token,
        step_position=position,
        step_slot=place,
        step_length=length,
        row_slots=rows,
        slot_token=slots.token,
        slot_position=slots.position,
        block_table=table,
        seqs=seqs,
        pages=pages,
    )
    for row, slot in enumerate(rows.tolist()):
        got = (token[row], position[row], place[row], length[row])
        at = int(slots.position[slot])
        inside = table[row, min(at, room - 1) // PAGE] * PAGE + at % PAGE
        want = (slots.token[slot], min(at, room - 1), inside if at < room else -1, at + 1)
        assert got == (want if slot >= 0 else (0, 0, -1, 0)), f"row {row} of slot {slot}"


def check_advance(run: Any, rng: np.random.Generator, seqs: int, count: int) -> None:
    slots, rows = random_slots(rng, count), random_rows(rng, seqs, count)
    for _ in range(slots.size + 2):
        chosen, want = rng.integers(-1, 99, seqs), slots.copy()
        run("advance", next_token=chosen, row_slots=rows, seqs=seqs, **slots.arguments)
        for row in np.flatnonzero(rows >= 0):
            want.keep(rows[row], chosen[row], want.position[rows[row]] + 1)
        assert slots.same(want)


def ragged(rng: np.random.Generator, seqs: int) -> np.ndarray:
    """Where each sequence's rows begin, some of none, and where the last one's end."""
    sizes = rng.integers(0, 5, seqs)
    sizes[rng.integers(seqs)] += 1
    return np.concatenate([[0], np.cumsum(sizes)]).astype(I32)


def check_lay_tokens(run: Any, rng: np.random.Generator, seqs: int, count: int) -> None:
    slots, rows, starts = random_slots(rng, count), random_rows(rng, seqs, count), ragged(rng, seqs)
    tokens = int(starts[-1]) + 3
    ids = rng.integers(0, 99, tokens)
    ids[rng.random(tokens) < 0.5] = -1
    got = np.full(tokens, POISON, I64)
    run(
        "lay_tokens",
        row_ids=got,
        token_ids=ids,
        cu_seqlens=starts,
        row_slots=rows,
        slot_token=slots.token,
        tokens=tokens,
        seqs=seqs,
    )
    owners = [*np.repeat(rows, np.diff(starts)).tolist(), -1, -1, -1]
    want = [id if id != -1 else slots.token[owner] if owner >= 0 else 0 for id, owner in zip(ids, owners, strict=True)]
    assert got.tolist() == want


def check_keep_tokens(run: Any, rng: np.random.Generator, seqs: int, count: int) -> None:
    slots, rows, starts = random_slots(rng, count), random_rows(rng, seqs, count), ragged(rng, seqs)
    positions, chosen = rng.integers(0, 99, int(starts[-1]) + 3), rng.integers(-1, 99, seqs)
    last = np.where(rng.random(seqs) < 0.6, np.maximum(starts[1:].astype(I64) - 1, 0), -1)
    want = slots.copy()
    run(
        "keep_tokens",
        next_token=chosen,
        logits_rows=last,
        positions=positions,
        row_slots=rows,
        seqs=seqs,
        tokens=len(positions),
        **slots.arguments,
    )
    for row in range(seqs):
        if rows[row] >= 0 and last[row] >= 0:
            want.keep(rows[row], chosen[row], positions[last[row]] + 1)
    assert slots.same(want)


def check_gather_rows(run: Any, rng: np.random.Generator, dtype: Any, seqs: int, width: int) -> None:
    x = rng.normal(size=(9, width)).astype(dtype)
    rows = rng.integers(-1, 9, seqs)
    y = np.full((seqs, width), np.nan, dtype)
    run("gather_rows", y=y, x=x, rows=rows, width=width, seqs=seqs, tokens=9)
    want = np.where((rows >= 0)[:, None], x[rows].astype(np.float32), 0)
    assert np.array_equal(y.astype(np.float32), want)
