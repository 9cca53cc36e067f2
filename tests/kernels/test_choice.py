"""Choosing the next token and feeding it back."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.choices import UNUSABLE, chosen, one_unusable, one_usable, ties
from kernels.harness import BF16, bf16, poison

I32, I64, F32 = np.int32, np.int64, np.float32


def argmax(run, logits, **options):
    chosen = poison((len(logits),), I64)
    run("argmax", next=chosen, logits=logits, vocabulary=logits.shape[1], seqs=len(logits), **options)
    return chosen.tolist()


@pytest.mark.parametrize("seqs", [1, 3])
@pytest.mark.parametrize("vocabulary", [1, 5, 64, 1000, 49_152])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_argmax(run, rng, seqs, vocabulary, threads):
    logits = rng.normal(size=(seqs, vocabulary)).astype(F32)
    assert argmax(run, logits, threads=threads) == logits.argmax(1).tolist()


SIZES = [1, 2, 5, 63, 64, 65, 131, 1000]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("vocabulary", [*SIZES, 49_152])
def test_ties_go_to_the_lowest_index(run, rng, vocabulary, threads):
    logits = ties(rng, vocabulary)
    assert argmax(run, logits, threads=threads) == chosen(logits)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("vocabulary", SIZES)
def test_a_nan_or_positive_infinity_anywhere_leaves_no_token(run, rng, vocabulary, threads):
    logits = one_unusable(rng, vocabulary)
    assert argmax(run, logits, threads=threads) == [-1] * vocabulary


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("vocabulary", SIZES)
def test_negative_infinity_is_a_banned_id(run, rng, vocabulary, threads):
    logits = one_usable(rng, vocabulary)
    assert argmax(run, logits, threads=threads) == [*range(vocabulary), -1]


def test_many_unusable_values_leave_no_token(run, rng):
    logits = rng.normal(size=(200, 700)).astype(F32)
    logits[:, ::3].view(np.uint32)[:] = rng.choice(UNUSABLE, (200, 234))
    logits[-1] = np.nan
    assert argmax(run, logits) == [-1] * 200


@pytest.mark.parametrize("vocabulary", [5, 1000])
def test_every_row_of_a_program_is_chosen_from_alike(run, rng, vocabulary):
    logits = np.concatenate([one_unusable(rng, vocabulary), one_usable(rng, vocabulary), ties(rng, vocabulary)])
    found = poison((len(logits),), I64)
    run("argmax_rows", next=found, logits=logits, vocabulary=vocabulary, tokens=len(logits))
    assert found.tolist() == chosen(logits)


@pytest.mark.parametrize("entry", ["embedding", "gather_bf16"])
def test_no_token_is_looked_up_as_the_first(run, rng, entry):
    table, ids = bf16(rng.normal(size=(7, 24))), np.array([3, -1, 0, np.iinfo(I64).min, 6])
    rows = poison((5, 24), F32 if entry == "embedding" else BF16)
    looked_up = {"x": rows, "hidden": 24} if entry == "embedding" else {"y": rows, "width": 24, "stride": 1}
    run(entry, ids=ids, table=table, tokens=5, seqs=5, **looked_up)
    assert np.array_equal(rows.astype(F32), table[[3, 0, 0, 0, 6]].astype(F32))


@pytest.mark.parametrize("tokens", [1, 8])
def test_argmax_of_every_row(run, rng, tokens):
    logits, chosen = rng.normal(size=(tokens, 1000)).astype(F32), poison((tokens,), I64)
    run("argmax_rows", next=chosen, logits=logits, vocabulary=1000, tokens=tokens)
    assert chosen.tolist() == logits.argmax(1).tolist()
