"""Timing steps of many sequences: at the context that was asked for, and all of them in each step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kern.bench.sequences import GROUPS, Window, benchmark_sequences, window
from kern.bench.steps import WARM_UP
from kern.device.host.device import HostDevice
from kern.engine import Generator
from kern.engine.schedule import Plan
from kern.engine.sequence import PromptError
from kern.runtime.loading import load
from kern.text import Tokenizer


@pytest.fixture(autouse=True)
def known_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostDevice, "read_bandwidth", lambda self: 1e10)


@pytest.mark.parametrize(
    ("context", "steps", "fit"), [(256, 256, 256), (100, 256, 166), (18, 5, 2), (18, 1, 1), (3000, 10, 10)]
)
def test_the_steps_are_around_the_context(context: int, steps: int, fit: int) -> None:
    timed = window(context, steps)

    assert timed.steps == fit
    assert timed.prompt >= 1
    assert abs(timed.prompt + WARM_UP + timed.steps / 2 - context) < 1


def test_a_context_without_room_for_the_warm_up_is_refused() -> None:
    with pytest.raises(PromptError, match="the context is 17 tokens"):
        window(17, 1)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_all_sequences_are_in_each_step_at_the_same_position(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, count: int, asynchronous: bool
) -> None:
    monkeypatch.setattr(HostDevice, "asynchronous", asynchronous)
    timed = Window(60, 40)
    plans: list[Plan] = []
    with load(tiny, capacity=timed.tokens, pool_tokens=8 * 112) as executable:
        generator = Generator(executable, Tokenizer.load(tiny), chunk=16)
        launch = generator.calls.launch

        def noted(plan: Plan) -> str:
            plans.append(plan)
            return launch(plan)

        monkeypatch.setattr(generator.calls, "launch", noted)
        (found,), bandwidth = benchmark_sequences(generator, [count], timed)

    assert (found.sequences, bandwidth) == (count, 1e10)
    steps = [plan for plan in plans if plan.kind == "decode"]
    assert {len(plan.parts) for plan in steps} == {count}
    assert all(len({part.start for part in plan.parts}) == 1 for plan in steps)
    # The graphs alone: the warm-up step by step, then groups; with the first step of a batch, positions begin again.
    ends = [place for place, plan in enumerate(plans) if plan.kind == "step"]
    assert len(ends) == 2
    alone = plans[ends[0] : ends[1]]
    groups = [plan for plan in alone if plan.ticks > 1]
    assert len(groups) == GROUPS
    assert sum(plan.ticks for plan in groups) == timed.steps // GROUPS * GROUPS
    assert groups[0].parts[0].start == timed.prompt + WARM_UP - 1


@pytest.mark.parametrize(
    ("load_with", "says"),
    [
        ({"capacity": 88, "pool_tokens": 1024}, "take 108 tokens per sequence; the capacity is 88"),
        ({"capacity": 108, "pool_tokens": 200}, "3 sequences of 108 tokens need 21 pages; the pool has 12"),
    ],
)
def test_what_was_loaded_too_small_is_refused(tiny: Path, load_with: dict[str, Any], says: str) -> None:
    with load(tiny, **load_with) as executable:
        generator = Generator(executable, Tokenizer.load(tiny))
        with pytest.raises(PromptError, match=says):
            benchmark_sequences(generator, [3], Window(80, 40))
