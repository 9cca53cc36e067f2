"""`kern mine`: the report, the JSON, the survey, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Kern
from support.recordings import Recorder, packed
from support.recordings_program import Arg, Behaviour, Op, Program, simulate
from support.recordings_programs import NORM, TOKENS

COUNTS = [2048, 1, 1, 16, 1, 34, 1, 85, 1]
GRAPHS = Behaviour(graph=True, noise=False)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A recording of a program whose layers have a kernel with a struct and one with a varying scalar."""
    mix = Op("_Z3mixI4halfLi8EEvPT_", (Arg("write"), Arg("read"), Arg("state")), ((TOKENS + 1).over(4), 8, 1))
    where = Op("where", (Arg("read"), Arg("position")), (1, 1, 1))
    packed = Op("packed", (Arg("write"), Arg("read"), Arg("weight")), (132, 1, 1), struct=True)
    program = Program((where,), (NORM, mix, packed), 4, (NORM, where))
    simulate(tmp_path, program, COUNTS, Behaviour())
    return tmp_path


def test_the_report_says_what_was_found(dump: Path, kern: Kern) -> None:
    done = kern("mine", dump)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 120
    assert any(line.startswith("9 passes") for line in lines)
    assert "token count: grid.x of norm, launch 0" in done.out
    for row in ("tokens", "mix<half, 8>", "ceil((tokens + 1) / 4) × 8", "fixed, each its own: 5 addresses in 1 range"):
        assert row in done.out
    assert "param 1 (i32)  2 sites: varies between passes of equal token count" in done.out
    assert "in graphs" not in done.out


def test_the_report_shows_graphs_and_passes_that_repeat_nothing(tmp_path: Path, kern: Kern) -> None:
    """A pass of one token is a graph's launch; none repeats a part, so all kernels are shown instead."""
    simulate(tmp_path, Program((), (NORM,), 1, (Op("best", (Arg("read"), Arg("i32", TOKENS))),)), COUNTS, GRAPHS)
    done = kern("mine", tmp_path)
    lines = done.out.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("passes"))
    assert "in graphs" in lines[start]
    many, one = lines[start + 1].split(), lines[start + 2].split()
    assert (many[:4], one[:2], one[4:6]) == (["0", "2,048", "2", "0"], ["1", "…"], ["2", "2"])
    assert all("no part repeats" in line for line in lines[start + 1 : start + 3])
    assert "parameters of the kernels in passes" in done.out
    assert any(line.startswith("norm ") and line.endswith("1 call site") for line in lines)


def test_of_many_reasons_the_report_gives_some(tmp_path: Path, kern: Kern) -> None:
    """Call sites that are each given another number of no meaning."""
    recorder = Recorder(tmp_path)
    kernel = recorder.kernel("odd", recorder.module(b"image"), (8, 4))
    for tokens in COUNTS * 2:
        for place in range(5):
            recorder.time += 1
            pointer = {"param": 0, "at": 0, "memory": "device", "range": [2**40, 2**20]}
            params = [packed(2**40 + 512 * place, 8), packed(recorder.time * (place + 1) % 9973, 4)]
            recorder.launch(kernel, params, [pointer], grid=[tokens, 1, 1])
    recorder.end()
    lines = [line.rstrip() for line in kern("mine", tmp_path).out.splitlines()]
    assert sum("param 1 (i32)  1 site: varies" in line for line in lines) == 2
    assert any(line.endswith("and 3 sites with other values") for line in lines)


def test_the_json_has_every_number(dump: Path, kern: Kern) -> None:
    done = kern("mine", dump, "--json")
    assert (done.code, done.err) == (0, "")
    (process,) = done.json["processes"]
    assert [each["tokens"] for each in process["passes"]] == COUNTS
    kernels = {kernel["symbol"]: (number, kernel) for number, kernel in enumerate(process["kernels"])}
    number, norm = kernels["norm"]
    assert (norm["traits"], norm["replayable"], norm["params"][2]) == (["flat"], True, [16, 8])
    assert (kernels["packed"][1]["replayable"], kernels["packed"][1]["reasons"]) == (False, ["a 24-byte struct"])
    assert process["reference"]["kernel"] == number
    site = next(site for site in process["sites"] if site["kernel"] == number)
    numbers = {entry["name"]: entry for entry in site["numbers"]}
    assert numbers["grid.x"] == {
        "name": "grid.x",
        "type": "geometry",
        "status": "fit",
        "expression": {"sym": "tokens"},
    }
    assert numbers["param 3"]["value"] == pytest.approx(1e-6)
    pointer = next(entry for entry in site["pointers"] if entry["param"] == 2)
    assert (pointer["stability"], pointer["memory"], len(pointer["addresses"])) == ("own", "device", 1)
    assert process["passes"][1]["block"]["count"] == 4


def test_the_survey_counts_what_a_manifest_could_launch(dump: Path, kern: Kern) -> None:
    done = kern("mine", dump, "--abi")
    assert done.code == 0
    packed = next(line for line in done.out.splitlines() if " packed " in line)
    assert "no: a 24-byte struct" in packed
    total = next(line for line in done.out.splitlines() if line.startswith("launchable under a manifest"))
    assert total.split()[-3:] == ["5", "130", "78.3%"]


def test_each_process_is_reported(dump: Path, kern: Kern) -> None:
    other = Recorder(dump, pid=7)
    other.launch(other.kernel("once", None, (4,)), [packed(1, 4)])
    other.end()
    (dump / "pid-8").mkdir()
    done = kern("mine", dump)
    assert done.code == 0
    assert "1 launch of 1 kernel (0.00% with their module)" in done.out
    assert "no passes" in done.out
    assert "pid-8: recording could not start" in done.out
    assert len(kern("mine", dump, "--json").json["processes"]) == 2


def test_what_was_lost_is_reported(tmp_path: Path, kern: Kern) -> None:
    recorder = Recorder(tmp_path)
    for _ in range(2):
        recorder.write("lost", what="a copy\x1b[31m", why="no memory")
    path = recorder.end() / "launches.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    done = kern("mine", tmp_path)
    assert "not recorded, 2 times: a copy␛[31m: no memory" in done.out
    assert "cut off" in done.out
    assert "did not exit regularly" in done.out


def test_refusals_are_one_error(tmp_path: Path, kern: Kern) -> None:
    done = kern("mine", tmp_path / "gone")
    assert (done.code, done.out) == (2, "")
    assert "gone" in done.err
    assert "help:" in done.err
    folder = tmp_path / "pid-1"
    folder.mkdir()
    (folder / "launches.jsonl").write_text("{}\n")
    done = kern("mine", tmp_path)
    assert (done.code, done.out) == (1, "")
    assert "launches.jsonl:1" in done.err
