"""`kern bench`: what it leaves out, and its warning about other processes on the processor."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Kern
from kern.cli import bench, processor
from kern.cli.processor import ProcessorTimes, busy_ticks, others_share
from kern.device.host.device import HostDevice

STAT = """cpu  300 30 60 5000 10 3 6 12 100 0
cpu0 100 10 20 1000 5 1 2 4 50 0
cpu1 200 20 40 4000 5 2 4 8 50 0
intr 572623 0 0
ctxt 1
"""


@pytest.fixture(autouse=True)
def known_bandwidth(monkeypatch: pytest.MonkeyPatch) -> None:
    """The read rate is not measured: that takes most of a short run's time."""
    monkeypatch.setattr(HostDevice, "read_bandwidth", lambda self: 1e10)


def times(clock: float, busy: float, own: float, processors: int = 2) -> ProcessorTimes:
    return ProcessorTimes(clock, busy, own, processors, 0.01)


def test_busy_are_all_ticks_but_idle_ones_and_those_that_wait_for_a_disk() -> None:
    assert busy_ticks(STAT, {0}) == 100 + 10 + 20 + 1 + 2 + 4
    assert busy_ticks(STAT, {0, 1}) == 137 + 274
    assert busy_ticks(STAT, {0, 2}) is None  # a processor that is not listed
    assert busy_ticks("cpu0 1 2 3\n", {0}) is None  # columns of a system that counts otherwise


@pytest.mark.parametrize(
    ("busy", "own", "share"),
    [
        (8.0, 8.0, 0.0),  # all ours
        (10.0, 8.0, 0.1),  # 2 of 20 seconds
        (20.0, 10.0, 0.5),
        (7.9, 8.0, 0.0),  # the counters round
        (21.0, 0.0, 1.0),
        (1.0, 8.0, None),  # counters that stand still
    ],
)
def test_the_share_of_others_is_of_the_processors_that_we_may_use(busy: float, own: float, share: float | None) -> None:
    assert others_share(times(100, 50, 3), times(110, 50 + busy, 3 + own)) == pytest.approx(share)


def test_a_share_that_is_not_known_is_none() -> None:
    assert others_share(None, times(1, 1, 1)) is None
    assert others_share(times(1, 1, 1), None) is None
    assert others_share(times(1, 1, 1), times(1.05, 1.1, 1)) is None  # ten ticks of two processors


def test_a_process_on_our_processors_is_counted() -> None:
    before = processor.processor_times()
    assert before is not None
    assert before.busy > 0
    assert before.own > 0


def test_a_system_that_counts_nothing_gives_no_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "STAT", tmp_path / "stat")
    assert processor.processor_times() is None


@pytest.mark.parametrize(("share", "warned"), [(0.37, True), (0.051, True), (0.05, False), (None, False)])
def test_bench_warns_of_other_processes(
    kern: Kern, tiny: Path, monkeypatch: pytest.MonkeyPatch, share: float | None, warned: bool
) -> None:
    monkeypatch.setattr(bench, "others_share", lambda before, after: share)
    done = kern("bench", tiny, "--steps", 8, "--decode-only", "--json")
    assert done.json["other_processes_share"] == share
    assert ("warning: other processes took" in done.err) is warned
    assert not warned or f"{share:.0%} of the processor" in done.err


def test_decode_only_times_only_decoding(kern: Kern, tiny: Path) -> None:
    found = kern("bench", tiny, "--steps", 8, "--decode-only", "--json").json
    assert found["prefill"] == []
    assert found["decode"]["steps"] == 8
    text = kern("bench", tiny, "--steps", 8, "--decode-only").out
    assert "prefill" not in text
    assert [line.split()[0] for line in text.splitlines()] == ["decode", "memory"]
