"""The slots of sequences on the host: rows in any order, padding rows, tokens of -1, and nothing else changed."""

import pytest

from kernels.harness import BF16
from kernels.slots import (
    check_advance,
    check_begin,
    check_gather_rows,
    check_keep_tokens,
    check_lay_rows,
    check_lay_tokens,
)

ROWS = [(1, 1), (1, 5), (3, 3), (8, 5), (40, 64)]


@pytest.mark.parametrize(("seqs", "slots"), ROWS)
def test_begin_changes_the_slots_of_its_rows_and_no_others(run, rng, seqs, slots):
    check_begin(run, rng, seqs, slots)


@pytest.mark.parametrize("pages", [1, 3])
@pytest.mark.parametrize(("seqs", "slots"), ROWS)
def test_a_step_has_the_last_token_of_each_slot_or_a_padding_row(run, rng, seqs, slots, pages):
    check_lay_rows(run, rng, seqs, slots, pages)


@pytest.mark.parametrize(("seqs", "slots"), ROWS)
def test_advance_moves_the_slots_of_its_rows_and_no_others(run, rng, seqs, slots):
    check_advance(run, rng, seqs, slots)


@pytest.mark.parametrize(("seqs", "slots"), ROWS)
def test_an_id_of_minus_one_is_the_last_token_of_the_rows_slot(run, rng, seqs, slots):
    check_lay_tokens(run, rng, seqs, slots)


@pytest.mark.parametrize(("seqs", "slots"), ROWS)
def test_only_slots_whose_row_chooses_move_on(run, rng, seqs, slots):
    check_keep_tokens(run, rng, seqs, slots)


@pytest.mark.parametrize("width", [1, 576, 4099])
@pytest.mark.parametrize("seqs", [1, 7, 64])
def test_rows_of_a_call_are_gathered_and_others_are_zeros(run, rng, seqs, width):
    check_gather_rows(run, rng, BF16, seqs, width)
