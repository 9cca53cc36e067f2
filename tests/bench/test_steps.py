"""Timing steps: as many as fit, and what they read."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

import pytest

from kern.bench.steps import GROUP, PROMPT, WARM_UP, benchmark
from kern.device.host.device import HostDevice
from kern.engine import Generator
from kern.engine.sequence import PromptError
from kern.runtime.loading import load
from kern.text import Tokenizer
from support.tiny import without_feedback


@pytest.mark.parametrize("capacity", [1, 15, 16, 31])
def test_a_capacity_without_room_for_a_step_is_refused(tiny: Path, capacity: int) -> None:
    with load(tiny, capacity=capacity) as executable:
        generator = Generator(executable, Tokenizer.load(tiny))

        with pytest.raises(PromptError, match=f"the capacity is {capacity}"):
            benchmark(generator, [], 10)


@pytest.mark.parametrize(("capacity", "asked", "steps"), [(32, 10, 1), (40, 10, 9), (64, 3, 3), (40, 10**400, 9)])
def test_what_a_step_reads_is_counted_over_the_steps_that_ran(
    tiny: Path, capacity: int, asked: int, steps: int
) -> None:
    with load(tiny, capacity=capacity) as executable:
        generator = Generator(executable, Tokenizer.load(tiny))
        found = benchmark(generator, [8, capacity, capacity + 1], asked)
    counted = generator.settings.decode_bytes

    assert found.decode.steps == steps
    context = PROMPT + WARM_UP + steps / 2
    assert found.bytes_per_step == round(counted.fixed + counted.per_context_token * context)
    assert [prefill.tokens for prefill in found.prefill] == [8, capacity]
    assert found.idle_us_per_step is None


@pytest.mark.parametrize("steps", [GROUP - 1, GROUP, 3 * GROUP + 1])
def test_the_idle_time_between_steps_is_measured_on_an_asynchronous_device(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(HostDevice, "asynchronous", True)
    with load(tiny, capacity=64) as executable:
        idle = benchmark(Generator(executable, Tokenizer.load(tiny)), [], steps).idle_us_per_step
    assert (idle is not None) is (steps >= GROUP)
    assert idle is None or isfinite(idle)


def test_steps_that_wait_for_the_host_have_no_idle_time(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = without_feedback(tiny, tmp_path / tiny.name)
    monkeypatch.setattr(HostDevice, "asynchronous", True)
    with load(folder, capacity=64) as executable:
        generator = Generator(executable, Tokenizer.load(folder))
        assert benchmark(generator, [], 16).idle_us_per_step is None
