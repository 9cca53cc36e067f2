"""From a round of speculation to the next, against plain Python."""

from __future__ import annotations

import pytest

from kernels.rounds import play


@pytest.mark.parametrize("seqs", [1, 3])
@pytest.mark.parametrize("block", [1, 3, 7])
def test_every_number_of_drafts_may_stand(run, rng, seqs, block):
    play(run, rng, seqs, block, pages=30, starts=[0, 15, 16][:seqs], count=40)


def test_more_rounds_than_the_counts_hold(run, rng):
    play(run, rng, 1, 1, pages=20, starts=[3], count=70)


def test_past_the_last_page_nothing_has_a_slot(run, rng):
    play(run, rng, 2, 7, pages=2, starts=[20, 31], count=12)
