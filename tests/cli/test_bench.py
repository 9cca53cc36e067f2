"""`kern bench`: what it leaves out, and its warning about other processes on the processor."""

from __future__ import annotations

import json
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


def test_steps_of_many_sequences_are_a_table(kern: Kern, tiny: Path) -> None:
    done = kern("bench", tiny, "--sequences", "1,3,8", "--context", 40, "--steps", 20)
    title, columns, *rows, note = done.out.splitlines()

    assert title == "decode steps at 40 tokens of context, ms; 20 steps each"
    assert [row.split()[0] for row in rows] == ["1", "3", "8"]
    assert all(len(row) == len(columns) for row in rows)
    assert note.endswith("share: of the 10.0 GB/s that reading alone reaches, by the graph")
    assert "  states  kv" in done.err


@pytest.mark.parametrize("more", [[], ["--eager"], ["--chunk", 5]])
def test_steps_of_many_sequences_as_json(kern: Kern, tiny: Path, more: list[str]) -> None:
    found = kern("bench", tiny, "--sequences", "2,5", "--context", 40, "--steps", 20, "--json", *more).json
    counted = json.loads((tiny / "text.json").read_text())["decode_bytes"]

    assert (found["context"], found["steps"], found["read_bandwidth"]) == (40, 20, 1e10)
    assert [each["sequences"] for each in found["sequences"]] == [2, 5]
    for each in found["sequences"]:
        for times in (each["graph"], each["caller"]):
            assert 0 < times["p10"] <= times["median"] <= times["p90"]
        read = counted["fixed"] + counted["per_context_token"] * 40 * each["sequences"]
        assert each["bytes_per_step"] == read
        assert each["bandwidth_share"] == pytest.approx(read / (each["graph"]["median"] * 1e-3) / 1e10)
        assert each["tokens_per_second"] == pytest.approx(each["sequences"] / each["caller"]["median"] * 1e3)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--sequences", "9"], "9 sequences at once; the folder runs 1 to 8"),
        (["--sequences", "1,0"], "--sequences '1,0' is not a list of numbers of sequences"),
        (["--sequences", ""], "--sequences '' is not a list of numbers of sequences"),
        (["--sequences", "2.5"], "--sequences '2.5' is not a list"),
        (["--context", "100"], "--context needs --sequences"),
        (["--sequences", "1", "--context", "17"], "the context is 17 tokens"),
        (["--sequences", "1", "--context", "3990"], "4126 tokens per sequence; the capacity is 4096"),
        (["--sequences", "1", "--context", "3990", "--capacity", "9999"], "the model has 4096 positions"),
        (["--sequences", "1", "--spec"], "leave --spec, --profile and --decode-only out"),
    ],
)
def test_sequences_that_cannot_be_timed_are_refused(kern: Kern, tiny: Path, options: list[str], says: str) -> None:
    done = kern("bench", tiny, *options)
    assert done.code == 2
    assert says in " ".join(done.err.split())
    assert not done.out
