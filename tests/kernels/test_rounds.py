"""From a round of speculation to the next, against plain Python."""

from __future__ import annotations

import pytest

from kernels.rounds import check_step_of_chain, mingle, play


@pytest.mark.parametrize("seqs", [1, 3, 8])
@pytest.mark.parametrize("block", [1, 3, 7])
def test_every_number_of_drafts_may_stand(run, rng, seqs, block):
    play(run, rng, block, pages=30, starts=[0, 15, 16, 1, 7, 8, 100, 3][:seqs], count=40)


def test_more_rounds_than_the_counts_hold(run, rng):
    play(run, rng, 1, pages=20, starts=[3], count=70)


def test_past_the_last_page_nothing_has_a_slot(run, rng):
    play(run, rng, 7, pages=2, starts=[20, 31], count=12)


@pytest.mark.parametrize("block", [1, 7])
def test_rows_come_go_and_change_places_between_rounds(run, rng, block):
    mingle(run, rng, 5, block, count=40)


@pytest.mark.parametrize("vocabulary", [1, 7, 1000])
@pytest.mark.parametrize(("seqs", "rows"), [(1, 2), (1, 8), (3, 8), (8, 4)])
def test_a_step_of_a_chain_adds_to_one_row_of_each_sequence(run, rng, vocabulary, seqs, rows):
    check_step_of_chain(run, rng, vocabulary, seqs, rows)
