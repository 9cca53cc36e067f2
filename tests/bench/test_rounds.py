"""Timing rounds: as many as there is room for, and what they accept."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

import pytest

from kern.bench.rounds import acceptance, benchmark_rounds
from kern.bench.steps import GROUP, PROMPT, WARM_UP
from kern.device.host.device import HostDevice
from kern.engine import Generator
from kern.engine.sequence import PromptError
from kern.runtime.loading import load
from kern.text import Tokenizer
from support.toy_speculation import ROWS, settings, spoiling, write_toy

TOKENIZER = Tokenizer(settings(), None)
LEAST = PROMPT - 1 + (WARM_UP + 1) * ROWS


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy(tmp_path_factory.mktemp("oracle") / "toy")


@pytest.mark.parametrize(("capacity", "asked", "rounds"), [(LEAST, 10, 1), (256, 10, 10), (256, 10**400, 14)])
def test_as_many_rounds_are_timed_as_the_capacity_holds(oracle: Path, capacity: int, asked: int, rounds: int) -> None:
    with load(oracle, capacity=capacity) as executable:
        found = benchmark_rounds(Generator(executable, TOKENIZER, spec=True), asked)

    assert found.rounds == rounds
    assert found.tokens_per_round == ROWS
    assert found.acceptance == (1,) * (ROWS - 1)
    assert 0 < found.p10 <= found.ms_per_round <= found.p90
    assert found.tokens_per_second == pytest.approx(ROWS / found.ms_per_round * 1e3)
    assert found.idle_us_per_round is None


def test_a_capacity_without_room_for_a_round_is_refused(oracle: Path) -> None:
    with load(oracle, capacity=LEAST - 1) as executable:
        generator = Generator(executable, TOKENIZER, spec=True)
        with pytest.raises(PromptError, match=f"the capacity is {LEAST - 1}; timing one round takes {LEAST}"):
            benchmark_rounds(generator, 5)


def test_what_is_accepted_is_reported_by_position(tmp_path: Path) -> None:
    accepts = [7] * WARM_UP + [7, 3, 0, 3]
    folder = write_toy(tmp_path / "toy", spoiling(PROMPT, accepts))
    with load(folder, capacity=512) as executable:
        found = benchmark_rounds(Generator(executable, TOKENIZER, spec=True), 4)

    assert found.tokens_per_round == 1 + 13 / 4
    assert found.acceptance == (0.75, 0.75, 0.75, 0.25, 0.25, 0.25, 0.25)


def test_shares_of_the_drafts_that_are_accepted() -> None:
    assert acceptance([0, 1, 3], 3) == (pytest.approx(2 / 3), pytest.approx(1 / 3), pytest.approx(1 / 3))


@pytest.mark.parametrize("rounds", [GROUP - 1, GROUP, 3 * GROUP + 1])
def test_an_asynchronous_device_is_asked_for_the_time_between_rounds(
    oracle: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    monkeypatch.setattr(HostDevice, "asynchronous", True)
    with load(oracle, capacity=512) as executable:
        found = benchmark_rounds(Generator(executable, TOKENIZER, spec=True), rounds)

    assert (found.idle_us_per_round is not None) is (rounds >= GROUP)
    assert found.idle_us_per_round is None or isfinite(found.idle_us_per_round)
    assert found.rounds == rounds
