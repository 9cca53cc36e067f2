"""A draft's programs on a GPU: every intermediate compared with the reference, and rounds with an oracle."""

from __future__ import annotations

from pathlib import Path

import pytest

from models import test_speculation_parity as parity
from models import test_speculation_rounds as rounds

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", parity.CASES)
def test_every_intermediate_is_the_references(tmp_path: Path, architecture: str, case: str) -> None:
    pair = parity.made(tmp_path, parity.CASES[case], architecture)
    for length in parity.CONTEXTS:
        parity.check_intermediates(pair, length)
    pair.executable.close()


def test_rounds_leave_the_state_that_a_prefill_of_their_tokens_would(tmp_path: Path, architecture: str) -> None:
    pair = parity.made(tmp_path, parity.CASES["of its target's family"], architecture)
    parity.check_rounds(pair)
    pair.executable.close()


def test_rounds_of_every_length_against_an_oracle(tmp_path: Path, architecture: str) -> None:
    oracle = rounds.made(tmp_path, architecture)
    for length in (0, 1, 15, 16, 29):
        rounds.check_rounds(oracle, length)
    rounds.check_capacity(oracle)
    rounds.check_graph(oracle)
    oracle.pair.executable.close()
