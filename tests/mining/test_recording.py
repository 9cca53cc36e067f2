"""Reading records: what they say is kept, and what cannot be is refused with file and line."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kern.manifest.params import Layout
from kern.mining import Launch, mine, read_recording
from kern.mining.errors import BadRecord, MiningError, ModuleMissing, RecordMissing
from support.nvrtc import cubin
from support.recordings import Recorder, launch_values, packed

DEVICE = {"memory": "device", "range": [0x7F0000000000, 4096]}


def recorded(dump: Path) -> Path:
    """A short record with one of each kind of line; its folder."""
    recorder = Recorder(dump)
    module = recorder.module(b"an image")
    kernel = recorder.kernel("work", module, (8, 4, 1, 24))
    params = [packed(0x7F0000000100, 8), packed(-3, 4), b"\1", packed(0x7F0000000200, 8) + bytes(16)]
    pointers = [{"param": 0, "at": 0, **DEVICE}, {"param": 3, "at": 0, **DEVICE}]
    recorder.launch(kernel, params, pointers, grid=[4, 2, 1], attributes={"cluster": [2, 1, 1]})
    recorder.write("copy", **{"from": 1, "to": 0x7F0000000100, "bytes": 4, "kind": "HtoD", "data": "01020304"})
    recorder.write("fill", to=0x7F0000000100, bytes=4, value=0, width=1)
    recorder.write("launch", **launch_values(kernel, params, pointers), capturing=True)
    node = {"kernel": kernel, "grid": [1, 1, 1], "block": [32, 1, 1], "params": [p.hex() for p in params]}
    recorder.write("graph", graph=1, nodes=[{**node, "pointers": pointers}, {"type": "memset"}])
    recorder.write("graph_launch", stream=7, graph=1)
    recorder.write("graph_launch", stream=7, graph=1)
    recorder.write("lost", what="a copy", why="no memory")
    recorder.write("unload", module=module)
    return recorder.end()


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    recording = read_recording(recorded(tmp_path))
    assert [event.what for event in recording.events] == ["launch", "copy", "fill", "launch", "launch"]
    first, *nodes = recording.launches
    assert (first.grid, first.integer(1), first.integer(2), first.address(0)) == ((4, 2, 1), -3, 1, 0x7F0000000100)
    assert first.attributes == {"cluster": [2, 1, 1]}
    pointer = first.pointer(3)
    assert pointer is not None
    assert (pointer.address, pointer.range) == (0x7F0000000200, (0x7F0000000000, 4096))
    assert first.pointer(1) is None
    assert [node.graph for node in nodes] == [1, 1]
    assert (recording.captured, recording.graph_launches, recording.ended, recording.torn) == (1, 2, True, False)
    assert [(loss.what, loss.why) for loss in recording.losses] == [("a copy", "no memory")]


def test_modules_are_the_very_bytes_that_were_recorded(tmp_path: Path) -> None:
    recording = read_recording(recorded(tmp_path))
    (sha256,) = recording.modules
    assert recording.module(sha256) == b"an image"
    path = recording.folder / "modules" / f"{sha256}.cubin"
    path.write_bytes(b"another image")
    with pytest.raises(ModuleMissing, match=sha256):
        recording.module(sha256)
    path.unlink()
    with pytest.raises(ModuleMissing, match=sha256):
        recording.module(sha256)


def test_a_float_is_read_from_its_bits(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.launch(recorder.kernel("work", None, (4,)), [packed(0.5, 4)])
    (launch,) = read_recording(recorder.end()).launches
    assert launch.f32(0) == 0.5
    assert launch.kernel.module is None


def test_a_launch_of_unknown_layout_has_its_packed_bytes(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    kernel = recorder.kernel("work", None, None)
    whole = packed(0x7F0000000100, 8) + bytes(8)
    recorder.launch(kernel, None, [{"at": 0, **DEVICE}], via="extra", bytes=whole.hex())
    (launch,) = read_recording(recorder.end()).launches
    assert launch.params is None
    assert launch.whole == whole
    assert [pointer.address for pointer in launch.pointers] == [0x7F0000000100]
    with pytest.raises(LookupError, match="work"):
        launch.integer(0)


def test_a_module_tells_the_layout_that_the_driver_does_not(tmp_path: Path) -> None:
    image = cubin('extern "C" __global__ void work(int n, float* out) { out[n] = n; }', "sm_90")
    recorder = Recorder(tmp_path)
    whole = packed(7, 4) + bytes(4) + packed(0x7F0000000100, 8)
    kernel = recorder.kernel("work", recorder.module(image), None, attributes={})
    other = recorder.kernel("other", recorder.module(b"no image"), None)
    for number in (kernel, other):
        recorder.launch(number, None, [{"at": 8, **DEVICE}], via="extra", bytes=whole.hex())
    node = {"kernel": kernel, "via": "extra", "bytes": whole.hex(), "pointers": [{"at": 8, **DEVICE}]}
    recorder.write("graph", graph=1, nodes=[node])
    recorder.write("graph_launch", stream=7, graph=1)
    recorder.end()
    first, second, replayed = mine(tmp_path).main.recording.launches
    assert (replayed.params, replayed.pointers, replayed.via) == (first.params, first.pointers, "extra")
    assert first.kernel.layout == Layout((0, 8), (4, 8))
    assert first.kernel.attributes.registers is not None
    assert (first.integer(0), first.address(1)) == (7, 0x7F0000000100)
    assert first.pointer(1) is not None
    assert (second.params, second.kernel.layout, second.whole) == (None, None, whole)


def test_a_graph_of_which_nodes_are_missing_is_a_loss(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.write("graph", graph=1, nodes=[], truncated=True)
    assert [loss.what for loss in read_recording(recorder.end()).losses] == ["nodes of a graph"]


def test_a_command_that_is_no_utf_8_is_read(tmp_path: Path) -> None:
    path = recorded(tmp_path) / "launches.jsonl"
    path.write_text(path.read_text().replace('"pass"', r'"caf\udce9"'))
    assert mine(tmp_path).main.recording.process.command[-1] == "caf\N{REPLACEMENT CHARACTER}"


def test_a_line_that_was_cut_off_is_left_out_and_reported(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    path = folder / "launches.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    recording = read_recording(folder)
    assert (recording.torn, recording.ended, len(recording.launches)) == (True, False, 3)


Edit = Callable[[list[dict[str, Any]]], None]


def field(kind: str, /, **values: Any) -> Edit:
    """Put other values into the first line of a kind; None takes a key away."""

    def edit(lines: list[dict[str, Any]]) -> None:
        line = next(line for line in lines if line["record"] == kind)
        line.update(values)
        for key in [key for key, value in values.items() if value is None]:
            del line[key]

    return edit


@pytest.mark.parametrize(
    ("edit", "line", "word"),
    [
        (field("process", format=2), 1, "format 2"),
        (field("process", record="launch"), 1, "thread"),
        (lambda lines: lines.insert(0, lines[1]), 1, "process"),
        (lambda lines: lines.insert(2, lines[0]), 3, "second process"),
        (field("kernel", module="0" * 64), 3, "0000"),
        (field("kernel", symbol=""), 3, "symbol"),
        (lambda lines: lines.insert(3, lines[2]), 4, "twice"),
        (field("launch", kernel=7), 4, "kernel 7"),
        (field("launch", grid=[1, 1]), 4, "grid"),
        (field("launch", grid=[1, -1, 1]), 4, "grid"),
        (field("launch", params=["00"]), 4, "sizes"),
        (field("launch", params=["zz"]), 4, "hex"),
        (field("launch", thread=None), 4, "thread"),
        (field("launch", pointers=[{"param": 9, "at": 0, **DEVICE}]), 4, "pointer"),
        (field("launch", pointers=[{"at": 0, **DEVICE}]), 4, "pointer"),
        (field("launch", pointers=[{"param": 0, "at": 1, **DEVICE}]), 4, "outside"),
        (field("copy", bytes=2**64), 5, "bytes"),
        (field("graph_launch", graph=3), 9, "graph 3"),
        (field("unload", module="0" * 64), 12, "not loaded"),
        (field("fill", record="flood"), 6, "flood"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(tmp_path: Path, edit: Edit, line: int, word: str) -> None:
    folder = recorded(tmp_path)
    path = folder / "launches.jsonl"
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    edit(lines)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    with pytest.raises(BadRecord) as error:
        mine(tmp_path)
    assert f"launches.jsonl:{line}:" in str(error.value)
    assert word in str(error.value)


@pytest.mark.parametrize(
    "text", ["{", "[]", "null", '{"record": 1}', "[" * 100_000, "\xff", "1e400", '{"record":"end"']
)
def test_a_line_that_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    path = recorded(tmp_path) / "launches.jsonl"
    path.write_bytes(path.read_bytes() + text.encode("latin-1") + b"\n")
    with pytest.raises(BadRecord, match=r"launches\.jsonl:14"):
        mine(tmp_path)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_damage_gives_an_answer_or_one_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    dump = tmp_path_factory.mktemp("damaged")
    path = recorded(dump) / "launches.jsonl"
    image = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(image) - 1))
        kind = data.draw(st.sampled_from(("byte", "cut", "drop", "twice")))
        if kind == "byte":
            image[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del image[max(at, 1) :]
        elif kind == "drop":
            del image[at : at + data.draw(st.integers(1, 300))]
        else:
            image[at:at] = image[at : at + data.draw(st.integers(1, 300))]
        if not image:
            break
    path.write_bytes(image)
    assert damaged_file(dump) in ("", str(path))


def damaged_file(dump: Path) -> str:
    """The file that the error names, empty where there is no error."""
    try:
        launches = mine(dump).main.recording.launches
    except MiningError as error:
        return str(error).partition(":")[0]
    return "" if all(isinstance(launch, Launch) for launch in launches) else "no launch"


def test_an_empty_record_is_refused(tmp_path: Path) -> None:
    (recorded(tmp_path) / "launches.jsonl").write_bytes(b"")
    with pytest.raises(BadRecord, match="no whole line"):
        mine(tmp_path)


def test_a_folder_without_a_record_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "gone"):
        with pytest.raises(RecordMissing, match=str(path)):
            mine(path)
    (tmp_path / "pid-1").mkdir()
    (tmp_path / "pid-1" / "recorder.log").write_text("no libcupti\n")
    with pytest.raises(RecordMissing, match="no libcupti"):
        mine(tmp_path)


def put(path: Path, kind: str) -> None:
    """Replace a file by something that is not a regular file."""
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
            made.bind(path.name)
    else:
        path.symlink_to({"dangling": path.parent / "gone", "loop": path, "zeros": Path("/dev/zero")}[kind])


NO_FILES = ("fifo", "folder", "socket", "dangling", "loop", "zeros")


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    folder = recorded(tmp_path)
    recording = read_recording(folder)
    (sha256,) = recording.modules
    put(folder / "modules" / f"{sha256}.cubin", kind)
    with pytest.raises(ModuleMissing, match=sha256):
        recording.module(sha256)
    put(folder / "launches.jsonl", kind)
    with pytest.raises(RecordMissing, match=r"launches\.jsonl"):
        mine(tmp_path)


def test_a_log_that_is_no_regular_file_is_not_waited_for(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    (folder / "launches.jsonl").unlink()
    put(folder / "recorder.log", "fifo")
    with pytest.raises(RecordMissing, match=r"recorder\.log: it is not a regular file"):
        mine(tmp_path)


def test_a_linked_record_is_read(tmp_path: Path) -> None:
    folder = recorded(tmp_path)
    path = folder / "launches.jsonl"
    path.symlink_to(path.rename(tmp_path / "elsewhere"))
    assert len(read_recording(folder).launches) == 3


def test_of_a_record_that_is_being_written_its_present_lines_are_read(tmp_path: Path) -> None:
    """Another process adds lines for as long as it is read."""
    path = recorded(tmp_path) / "launches.jsonl"
    lines = path.read_text().splitlines()
    lost = next(line for line in lines if '"lost"' in line)
    code = f"import sys\nwhile True:\n    open(sys.argv[1], 'a').write({lost + chr(10)!r} * 999)"
    path.write_text("\n".join(lines[:-1]) + "\n")
    with subprocess.Popen([sys.executable, "-c", code, str(path)]) as writer:
        try:
            while path.stat().st_size < 2**18:
                assert writer.poll() is None
            recording = read_recording(path.parent)
        finally:
            writer.kill()
    assert len(recording.launches) == 3
    assert 2**17 < len(recording.losses) * len(lost) < path.stat().st_size


def test_processes_are_kept_apart(tmp_path: Path) -> None:
    recorded(tmp_path)
    empty = Recorder(tmp_path, pid=7)
    empty.end()
    (tmp_path / "pid-8").mkdir()
    mined = mine(tmp_path)
    assert [process.recording.process.pid for process in mined.processes] == [100, 7]
    assert mined.main.recording.process.pid == 100
    assert mined.unrecorded == (tmp_path / "pid-8",)
    assert mine(tmp_path / "pid-7").main.passes == ()
