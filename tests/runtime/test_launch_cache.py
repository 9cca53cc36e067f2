"""Launch lists are made once for each program and values, and kept up to a number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import kern
from kern.device.host.device import HostDevice
from kern.device.host.launch import HostPrepared
from kern.manifest.launches import Launch
from kern.runtime import launch_cache, loading
from support.toy import CAPACITY, COLUMNS, ROWS, gained, toy_weights


class PreparingDevice(HostDevice):
    """Counts the launch lists that are prepared."""

    prepared = 0

    def prepare(self, launches: Sequence[Launch]) -> HostPrepared:
        self.prepared += 1
        return super().prepare(launches)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> PreparingDevice:
    """The device that will be opened."""
    device = PreparingDevice()
    monkeypatch.setattr(loading, "open_device", lambda name, tune: device)
    return device


def row(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-50, 50, (1, COLUMNS)).astype(np.float32)


def test_more_values_than_launch_lists_are_kept_run_right(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 20
    monkeypatch.setattr(launch_cache, "MAX_ENTRIES", most)
    starts = [*range(most + 1), 0, most]
    with kern.load(toy, capacity=most + 1) as executable:
        for turn, start in enumerate(starts):
            executable.write("x", row(turn), {"rows": 1})
            executable.run("step", {"rows": 1, "start": start})
        assert executable.read("count") == len(starts)
        executable.run("recall", {"start": most})
        last = {start: turn for turn, start in enumerate(starts)}
        expected = sum(gained(row(last[start]), toy_weights())[0] for start in range(most))
        np.testing.assert_array_equal(executable.read("kept"), expected)


def test_each_of_300_values_is_prepared_once(toy: Path, device: PreparingDevice) -> None:
    every = [{"rows": rows, "start": start} for rows in range(1, ROWS + 1) for start in range(19)]
    with kern.load(toy, capacity=CAPACITY) as executable:
        for turn in range(2):
            for values in every if turn else reversed(every):
                executable.run("fill", values)
        assert executable.read("count") == 2 * len(every)
    assert device.prepared == len(every) > 300


def test_the_lists_that_were_used_last_are_kept(
    toy: Path, device: PreparingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_cache, "MAX_ENTRIES", 3)
    with kern.load(toy, capacity=CAPACITY) as executable:
        for start in (0, 1, 2, 0, 3, 0, 4, 0):
            executable.run("step", {"rows": 1, "start": start})
    assert device.prepared == 5
