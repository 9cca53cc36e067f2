"""Choosing the next token and feeding it back."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.harness import poison

I32, I64, F32 = np.int32, np.int64, np.float32


def argmax(run, logits, **options):
    chosen = poison((len(logits),), I64)
    run("argmax", chosen, logits, logits.shape[1], seqs=len(logits), **options)
    return chosen.tolist()


@pytest.mark.parametrize("seqs", [1, 3])
@pytest.mark.parametrize("vocabulary", [1, 5, 64, 1000, 49_152])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_argmax(run, rng, seqs, vocabulary, threads):
    logits = rng.normal(size=(seqs, vocabulary)).astype(F32)
    assert argmax(run, logits, threads=threads) == logits.argmax(1).tolist()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_ties_go_to_the_lowest_index(run, rng, threads):
    for _ in range(20):
        logits = rng.integers(-3, 3, (3, 2000)).astype(F32)
        logits[2] = -np.inf
        assert argmax(run, logits, threads=threads) == logits.argmax(1).tolist()


def test_nan_never_wins_over_a_number(run, rng):
    logits = np.full((4, 3000), np.nan, F32)
    logits[0, 2999] = -np.inf
    logits[1, [700, 701, 1500]] = 3.0
    logits[2, ::2] = rng.normal(size=1500)
    assert argmax(run, logits) == [2999, 700, int(np.nanargmax(logits[2])), 0]


@pytest.mark.parametrize("tokens", [1, 8])
def test_argmax_of_every_row(run, rng, tokens):
    logits, chosen = rng.normal(size=(tokens, 1000)).astype(F32), poison((tokens,), I64)
    run("argmax_rows", chosen, logits, 1000, tokens=tokens)
    assert chosen.tolist() == logits.argmax(1).tolist()


@pytest.mark.parametrize("seqs", [1, 3])
def test_begin_takes_the_first_of_each_input(run, rng, seqs):
    ring, before = np.full((seqs, 8), 5, I64), np.full((seqs, 8), 5, I64)
    ids, positions = rng.integers(0, 99, 7), rng.integers(0, 99, 7)
    slots, lens = rng.integers(-1, 99, 7), rng.integers(1, 99, 7).astype(I32)
    token, position, slot, length = (poison((seqs,), t) for t in (I64, I64, I64, I32))
    run("begin", token, position, slot, length, ring, ids, positions, slots, lens, seqs, 8)
    for got, given in ((token, ids), (position, positions), (slot, slots), (length, lens)):
        assert np.array_equal(got, given[:seqs])
    before[np.arange(seqs), positions[:seqs] % 8] = ids[:seqs]
    assert np.array_equal(ring, before)


def test_advance_follows_the_table_to_its_end_and_not_beyond(run):
    pages, ring_size, seqs = 2, 8, 2
    table = np.array([[4, 9], [7, 1]], I32)
    token, position = np.array([1, 2]), np.array([13, 29])
    slot, length = np.array([0, 0]), np.array([14, 30], I32)
    ring, want = np.zeros((seqs, ring_size), I64), np.zeros((seqs, ring_size), I64)
    for step in range(1, 21):
        chosen = np.array([100 + step, 200 + step])
        run("advance", token, position, slot, length, ring, chosen, table, seqs, pages, ring_size)
        at = np.array([13, 29]) + step
        want[[0, 1], at % ring_size] = chosen
        slots = [int(table[s, p // 16]) * 16 + p % 16 if p < pages * 16 else -1 for s, p in enumerate(at.tolist())]
        assert (token.tolist(), position.tolist(), slot.tolist()) == (chosen.tolist(), at.tolist(), slots)
        assert length.tolist() == (at + 1).tolist()
        assert np.array_equal(ring, want)
