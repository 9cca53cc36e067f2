"""Limits on what is read of a recording: a small file may expand to more than a machine can hold."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kern.mining import mine, read_recordings
from kern.mining.blocks import repeated
from kern.mining.errors import BadRecord, RecordTooLarge
from kern.mining.limits import MAX_EVENTS, MAX_LINE, MAX_PARTS, Budget, Excess
from kern.mining.schema import MAX_ITEMS
from kern.mining.symbols import short
from support.recordings import Recorder, packed

MEMORY = 2**30
SECONDS = 60
OF_A_GRAPH = "a graph's nodes counted at each launch of the graph"


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def kern_mine(dump: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kern", "mine", str(dump), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, preexec_fn=limited)


def graph(dump: Path, nodes: int, launches: int) -> Recorder:
    """A graph of kernels without parameters, and its launches."""
    recorder = Recorder(dump)
    kernel = recorder.kernel("work", None, ())
    recorder.write("graph", graph=1, nodes=[{"kernel": kernel, "params": []}] * nodes)
    for _ in range(launches):
        recorder.write("graph_launch", graph=1)
    recorder.end()
    return recorder


@pytest.mark.parametrize(("nodes", "launches"), [(2_000, 500), (60_000, 40_000)])
def test_a_small_file_that_stands_for_millions_of_launches_is_refused(
    tmp_path: Path, nodes: int, launches: int
) -> None:
    graph(tmp_path, nodes, launches)
    done = kern_mine(tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"kern: error[record-too-large]: {tmp_path}/pid-100/launches.jsonl:{3 + MAX_EVENTS // nodes + 1}: "
        f"the recording has more than 524,288 events, {OF_A_GRAPH}, and no more is read",
        "help: record a shorter run",
    ]


def test_processes_share_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget(events=1_500)
    monkeypatch.setattr("kern.mining.recording.Budget", lambda: budget)
    for pid in (1, 2):
        recorder = Recorder(tmp_path, pid)
        kernel = recorder.kernel("work", None, ())
        for _ in range(1_000):
            recorder.write("launch", thread=1, kernel=kernel, grid=[1, 1, 1], block=[1, 1, 1], params=[])
        recorder.end()
    with pytest.raises(RecordTooLarge, match=rf"pid-2/launches.jsonl:503: .* {MAX_EVENTS:,} events"):
        read_recordings(tmp_path)


def test_what_a_node_holds_counts_at_each_launch_of_its_graph(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    kernel = recorder.kernel("work", None, (8,) * 4_000)
    node = {"kernel": kernel, "params": [packed(0, 8).hex()] * 4_000}
    recorder.write("graph", graph=1, nodes=[node])
    for _ in range(MAX_PARTS // 4_000):
        recorder.write("graph_launch", graph=1)
    recorder.end()
    with pytest.raises(RecordTooLarge, match=f"more than {MAX_PARTS:,} parameters, addresses and entries"):
        read_recordings(tmp_path)


def test_recordings_of_the_size_that_is_wanted_are_within_the_bounds() -> None:
    """One of vLLM: 44,000 launches, and 75 graphs of 35,263 nodes in all, launched ten times each."""
    budget = Budget()
    budget.take_bytes(44_000 * 4_000 + 35_263 * 3_000)
    budget.take(44_000, 44_000 * 30)
    budget.take(0, 35_263 * 5)
    for _ in range(10):
        budget.take(35_263, 35_263 * 5)
    with pytest.raises(Excess):
        budget.take(MAX_EVENTS, 0)


def line(record: str, **values: Any) -> str:
    return json.dumps({"record": record, "t": 1, **values}, separators=(",", ":"))


def many(record: str, field: str, item: str, **values: Any) -> str:
    """A line as long as may be, whose `field` is a list of `item`."""
    before, after = line(record, **values, **{field: ["@"]}).split('"@"')
    count = (MAX_LINE - len(before) - len(after) - 1) // (len(item) + 1) - 1
    return before + f"{item}," * count + item + after


LAUNCH: dict[str, Any] = {"thread": 1, "kernel": 0, "grid": [1, 1, 1], "block": [1, 1, 1]}
LONG: dict[str, Callable[[], str]] = {
    "nodes": lambda: many("graph", "nodes", "{}", graph=1),
    "nodes that are none": lambda: many("graph", "nodes", "1", graph=1),
    "a layout": lambda: many("kernel", "params", "[0,0]", kernel=0, symbol="k"),
    "an attribute": lambda: line("launch", **LAUNCH)[:-1] + f',"attributes":{{"a":[{"0," * (MAX_LINE // 2 - 99)}0]}}}}',
    "depth": lambda: line("launch", **LAUNCH)[:-1] + ',"x":' + "[" * (MAX_LINE - 200) + "}",
}  # fmt: skip


@pytest.mark.parametrize("what", LONG)
def test_a_line_that_is_all_one_list_takes_no_more_memory_than_is_bounded(tmp_path: Path, what: str) -> None:
    recorder = Recorder(tmp_path)
    recorder.end()
    path = recorder.folder / "launches.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n" + LONG[what]() + "\n")
    done = kern_mine(tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (1, 2)
    assert f"{path}:2: " in done.stderr


def test_a_line_longer_than_the_bound_is_refused(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.write("lost", what="x" * MAX_LINE, why="")
    recorder.end()
    with pytest.raises(BadRecord, match=f"longer than {MAX_LINE:,} bytes"):
        mine(tmp_path)


def test_a_list_may_have_as_many_items_as_the_bound(tmp_path: Path) -> None:
    graph(tmp_path, MAX_ITEMS, 1)
    assert len(read_recordings(tmp_path)[0][0].events) == MAX_ITEMS
    graph(tmp_path / "more", MAX_ITEMS + 1, 1)
    with pytest.raises(BadRecord, match="at most 65536 items"):
        mine(tmp_path / "more")


def test_the_report_of_many_kernels_is_cut_and_says_so(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for number in range(300):
        kernel = recorder.kernel(f"k{number}", None, ())
        recorder.write("launch", thread=1, kernel=kernel, grid=[1, 1, 1], block=[1, 1, 1], params=[])
    recorder.end()
    done = kern_mine(tmp_path, "--abi")
    assert "and 44 kernels more: --json has them all" in done.stdout
    assert "k255 " in done.stdout
    assert "k256 " not in done.stdout


def test_the_block_of_a_long_pass_is_found_by_looks_at_the_pass_not_by_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kern.mining.blocks.MAX_PERIOD", 3)
    assert repeated(list("abcdabcdabcd")) is None
    found = repeated(list("xabcabcabc"))
    assert found is not None
    assert (found.first, found.period, found.count) == (1, 3, 3)


def test_no_symbol_takes_long_to_shorten() -> None:
    """Run in a process: what would take minutes is stopped."""
    code = (
        "from kern.mining.symbols import short\n"
        "for text in ('a' * 65536, '_Z' + '1a' * 32000, '_ZN' + '1a' * 32000, '_Z1aI' + 'Li1' * 21000):\n"
        "    assert short(text)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=SECONDS)
    assert short("at::native::sum") == "sum"
