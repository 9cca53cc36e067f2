"""`kern call`: a program from the shell. Right values by numpy; each mistake is one line, and nothing is written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cli.conftest import Done, Kern
from kern.manifest.builder import ManifestBuilder
from kern.manifest.params import DTYPE_BYTES
from support.artifacts import toy_kernels, write_artifact
from support.inputs import DTYPES
from support.tiny import tiny_reference
from support.toy import CAPACITY, COLUMNS, MODULE, gained, single, toy_artifact, toy_weights

AT = ("--set", "rows=3", "--set", "start=0")


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_artifact(tmp_path_factory.mktemp("toy") / "artifact")


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program for each dtype that copies `in` to `out`, [2, n] both; one that reads two inputs."""
    b = ManifestBuilder("copies")
    n = b.symbol("n", max=8)
    for dtype, size in DTYPE_BYTES.items():
        b.kernel(f"copy_{dtype}", single("copy_bytes", (f"out buffer<{dtype}>", f"in buffer<{dtype}>", "i32")))
        source, target = b.input(f"in_{dtype}", dtype, (2, n)), b.output(f"out_{dtype}", dtype, (2, n))
        b.program(dtype).dispatch(f"copy_{dtype}", target, source, n * (2 * size))
    both = b.program("both")
    for name in ("first", "second"):
        both.dispatch("copy_u8", b.output(f"out_{name}", "u8", (n,)), b.input(name, "u8", (n,)), n)
    return write_artifact(tmp_path_factory.mktemp("copies") / "folder", b.build(), {MODULE: toy_kernels()})


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to call from."""
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.ones((3, COLUMNS), np.float32))
    np.save("b.npy", np.arange(4, dtype=np.uint8))
    return tmp_path


def refused(done: Done, *words: str) -> None:
    assert (done.code, done.out) == (2, ""), done
    said = [line for line in done.err.splitlines() if line.startswith("kern: error[")]
    assert len(said) == 1, done.err
    assert all(line.startswith(("kern: error[", "help: ")) for line in done.err.splitlines()), done.err
    for word in words:
        assert word in done.err


def test_a_program_computes_what_its_kernels_do(kern: Kern, toy: Path, work: Path) -> None:
    weights, x = toy_weights(), np.load("x.npy")
    done = kern("call", toy, "fill", *AT, "--in", "x=x.npy", "--out", "seen=seen.npy", "--out", "total=t.npy")
    assert (done.code, done.err) == (0, "")
    assert done.out == "seen: f32 [3, 8] in seen.npy\ntotal: f32 [8] in t.npy\n"
    np.testing.assert_array_equal(np.load("seen.npy", allow_pickle=False), gained(x, weights))
    np.testing.assert_array_equal(np.load("t.npy"), gained(x, weights).sum(0))
    assert sorted(os.listdir()) == ["b.npy", "seen.npy", "t.npy", "x.npy"]


def test_carries_and_states_go_on_from_run_to_run(kern: Kern, toy: Path, work: Path) -> None:
    outs = ("--out", "total=t.npy", "--out", "count=c.npy")
    done = kern("call", toy, "fill", *AT, "--in", "x=x.npy", *outs, "--repeat", 5, "--time", "--check")
    assert done.code == 0
    np.testing.assert_array_equal(np.load("t.npy"), 5 * gained(np.load("x.npy"), toy_weights()).sum(0))
    assert np.load("c.npy").tolist() == [5], "the runs that time each launch come after the outputs"
    done = kern("call", toy, "recall", "--set", "start=3", "--capacity", CAPACITY, "--out", "kept=k.npy", "--json")
    assert done.json["outputs"] == {"kept": {"dtype": "f32", "shape": [8], "file": "k.npy"}}
    assert not np.load("k.npy").any(), "states are zeros at first"


def test_the_times_are_one_line(kern: Kern, toy: Path, work: Path) -> None:
    done = kern("call", toy, "fill", *AT, "--in", "x=x.npy", "--time", "--repeat", 3)
    number = r"\d+\.\d"
    runs = rf"median {number} µs, min {number} µs of 3 runs; 7 launches, {number} µs each on average"
    assert re.fullmatch(rf"fill rows=3 start=0: {runs}\n", done.out)
    found = kern("call", toy, "fill", *AT, "--in", "x=x.npy", "--time", "--repeat", 3, "--json").json
    assert (found["program"], found["values"], found["outputs"]) == ("fill", {"rows": 3, "start": 0}, {})
    times = found["time"]
    assert (times["runs"], len(times["launches"])) == (3, 7)
    assert 0 < times["min_us"] <= times["median_us"]
    means = [launch["mean_us"] for launch in times["launches"]]
    assert times["mean_us_per_launch"] == pytest.approx(sum(means) / 7)
    assert [launch["kernel"] for launch in times["launches"][-2:]] == ["summarize"] * 2
    assert kern("call", toy, "fill", *AT, "--in", "x=x.npy", "--json").json["time"] is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_in_and_out_as_it_is(kern: Kern, copies: Path, work: Path, dtype: str) -> None:
    values = np.random.default_rng(3).integers(0, 100, (2, 4)).astype(DTYPES[dtype])
    bits = {"bf16": np.uint16, "fp8e4m3": np.uint8}.get(dtype)
    forms: list[np.ndarray] = [values, np.asfortranarray(values)]
    if bits is not None:
        forms += [values.view(bits), values.view(bits).astype(np.dtype(bits).newbyteorder(">"))]
    elif values.dtype.kind == "i":
        forms += [values.astype(np.int8), values.astype(">i8")]
    for form in forms:
        np.save("in.npy", form)
        done = kern(
            "call", copies, dtype, "--set", "n=4", "--in", f"in_{dtype}=in.npy", "--out", f"out_{dtype}=out.npy"
        )
        assert done.code == 0, done
        found = np.load("out.npy", allow_pickle=False)
        assert found.dtype == (bits or values.dtype)
        np.testing.assert_array_equal(found.view(values.dtype), values)


def test_what_was_written_can_be_read_again(kern: Kern, copies: Path, work: Path) -> None:
    np.save("1.npy", np.arange(8).reshape(2, 4).astype(ml_dtypes.bfloat16))
    for step in (1, 2):
        names = ("--in", f"in_bf16={step}.npy", "--out", f"out_bf16={step + 1}.npy")
        assert kern("call", copies, "bf16", "--set", "n=4", *names).code == 0
    assert np.load("3.npy").view(ml_dtypes.bfloat16).astype(int).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    same = ("--in", "in_bf16=3.npy", "--out", "out_bf16=3.npy")
    assert kern("call", copies, "bf16", "--set", "n=4", *same).code == 0


@pytest.mark.parametrize(
    ("dtype", "array"),
    [
        ("bf16", np.zeros((2, 4), np.float32)),
        ("bf16", np.zeros((2, 4), np.int16)),
        ("bf16", np.zeros((2, 4), "V4")),
        ("fp8e4m3", np.zeros((2, 4), np.int8)),
        ("fp8e4m3", np.zeros((2, 4), np.uint16)),
        ("f16", np.zeros((2, 4), np.uint16)),
        ("f16", np.zeros((2, 4), "V2")),
        ("f32", np.zeros((2, 4))),
        ("f32", np.zeros((2, 4), np.int32)),
        ("i32", np.zeros((2, 4), bool)),
        ("i32", np.zeros((2, 4), np.float32)),
        ("u8", np.full((2, 4), 256)),
        ("u8", np.full((2, 4), -1)),
        ("u8", np.zeros((2, 4), "M8[s]")),
        ("u8", np.zeros((2, 4), [("a", "u1")])),
        ("u8", np.zeros((2, 3), np.uint8)),
        ("u8", np.zeros((4, 2), np.uint8)),
        ("u8", np.zeros(8, np.uint8)),
        ("u8", np.zeros((), np.uint8)),
        ("u8", np.zeros((2, 8), np.uint8)),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.dtype}{list(value.shape)}",
)
def test_an_array_of_another_dtype_or_shape_is_refused(
    kern: Kern, copies: Path, work: Path, dtype: str, array: np.ndarray
) -> None:
    np.save("in.npy", array)
    names = ("--in", f"in_{dtype}=in.npy", "--out", f"out_{dtype}=out.npy")
    refused(kern("call", copies, dtype, "--set", "n=4", *names), f"'in_{dtype}' ")
    assert not Path("out.npy").exists()


CALL = ("both", "--set", "n=4", "--in", "first=b.npy", "--in", "second=b.npy")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["gone", *CALL[1:]], ["unknown program 'gone'", "both"]),
        (["u8", "--set", "n=4"], ["program 'u8' has no value for its input in_u8", "--in in_u8=FILE;", "kern inspect"]),
        (["both", "--set", "n=4"], ["no value for its inputs first, second", "--in first=FILE …"]),
        (CALL[:5], ["no value for its input second"]),
        ([*CALL, "--in", "in_u8=b.npy"], ["program 'both' has no input 'in_u8'", "its inputs: first, second"]),
        ([*CALL, "--in", "out_first=b.npy"], ["has no input 'out_first'"]),
        ([*CALL, "--in", "gone=b.npy"], ["has no input 'gone'", "its inputs: first, second\n"]),
        ([*CALL, "--out", "gone=y.npy"], ["has no output 'gone'", "its outputs: out_first, out_second\n"]),
        ([*CALL, "--out", "out_u8=y.npy"], ["program 'both' has no output 'out_u8'", "out_first, out_second"]),
        ([*CALL, "--out", "first=y.npy"], ["has no output 'first'"]),
        ([*CALL, "--set", "n=4"], ["--set gives 'n' twice"]),
        ([*CALL, "--in", "first=b.npy"], ["--in gives 'first' twice"]),
        ([*CALL, "--out", "out_first=y.npy", "--out", "out_first=z.npy"], ["--out gives 'out_first' twice"]),
        ([*CALL, "--out", "out_first=y.npy", "--out", "out_second=./y.npy"], ["would both be written to"]),
        ([*CALL, "--set", "m=4"], ["unknown symbol 'm'", "the symbols are n"]),
        (["both", "--set", "n=3", *CALL[3:]], ["but the array has [4]\n", "or other symbol values with --set\n"]),
        (["both", "--in", "first=b.npy", "--in", "second=b.npy"], ["no value for n", "--set NAME=N"]),
        *(
            (["both", "--set", text, *CALL[3:]], [word])
            for text, word in {
                "n": "'n' is not NAME=N",
                "=4": "'=4' is not NAME=N",
                "n=": "'n=' is not NAME=N",
                "n=four": "'four', not an integer",
                "n=4.0": "'4.0', not an integer",
                "n=1_0": "'1_0', not an integer",
                "n=٤": "not an integer",
                "n= 4": "' 4', not an integer",
                "n=" + "9" * 5000: "not an integer",
                "n=9": "n is 9\nhelp: give a value in 1…8",
                "n=0": "n is 0",
                "n=-4": "n is -4",
            }.items()
        ),
        (["both", "--set", "n=4", "--in", "first"], ["'first' is not NAME=FILE", "--in x=x.npy"]),
        ([*CALL, "--out", "out_first="], ["'out_first=' is not NAME=FILE", "--out y=y.npy"]),
        ([*CALL, "--out", "out_first=gone/y.npy"], ["an output cannot be written to gone/y.npy"]),
        ([*CALL, "--out", "out_first=."], ["it is not a file"]),
        ([*CALL, "--out", "out_first=" + "y" * 300], ["an output cannot be written to"]),
        ([*CALL, "--device", "tpu"], ["tpu"]),
    ],
    ids=lambda value: " ".join(value)[-60:],
)
def test_a_users_mistake_is_one_error(
    kern: Kern, copies: Path, work: Path, options: list[str], words: list[str]
) -> None:
    before = sorted(os.listdir())
    refused(kern("call", copies, *options), *words)
    assert sorted(os.listdir()) == before


def pickled(path: Path) -> None:
    np.save(path, np.array([print, 2], object), allow_pickle=True)


def header(text: str, values: bytes = b"\0" * 4, version: bytes = b"\1\0") -> Callable[[Path], object]:
    size = len(text).to_bytes(2 if version == b"\1\0" else 4, "little")
    return lambda path: path.write_bytes(b"\x93NUMPY" + version + size + text.encode("latin1") + values)


PLAIN = "{'descr': '|u1', 'fortran_order': False, 'shape': (4,)}\n"


@pytest.mark.parametrize(
    "make",
    {
        "nothing": lambda path: path.write_bytes(b""),
        "text": lambda path: path.write_text("1 2 3 4"),
        "cut": lambda path: path.write_bytes(Path("b.npy").read_bytes()[:-1]),
        "cut header": lambda path: path.write_bytes(Path("b.npy").read_bytes()[:20]),
        "longer": lambda path: path.write_bytes(Path("b.npy").read_bytes() + b"\0"),
        "archive": lambda path: np.savez(path.open("wb"), np.zeros(4)),
        "pickle": pickled,
        "huge": header(PLAIN.replace("(4,)", "(4000000000000,)")),
        "overflowing": header(PLAIN.replace("(4,)", "(4294967296, 4294967296, 4294967296, 4)")),
        "negative": header(PLAIN.replace("(4,)", "(-4,)")),
        "negative twice": header(PLAIN.replace("(4,)", "(-2, -2)")),
        "no shape": header(PLAIN.replace("(4,)", "None")),
        "no dtype": header(PLAIN.replace("|u1", "gone")),
        "no dictionary": header("[]\n"),
        "not Python": header("{'descr'\n"),
        "nested": header("(" * 9000 + "\n"),
        "long header": header(PLAIN + " " * 60000),
        "version 3": header(PLAIN, version=b"\3\0"),
        "version 9": header(PLAIN, version=b"\x09\0"),
        "folder": lambda path: path.mkdir(),
        "queue": os.mkfifo,
        "missing": lambda path: None,
    }.items(),
    ids=lambda pair: pair[0],
)
def test_a_file_that_is_not_an_array_is_refused(
    kern: Kern, copies: Path, work: Path, make: tuple[str, Callable[[Path], object]]
) -> None:
    make[1](Path("bad.npy"))
    done = kern("call", copies, "both", "--set", "n=4", "--in", "first=b.npy", "--in", "second=bad.npy")
    refused(done, "bad.npy", ".npy file")


def test_headers_of_the_second_version_and_of_python_2_are_read(kern: Kern, copies: Path, work: Path) -> None:
    header(PLAIN, bytes([4, 3, 2, 1]), version=b"\2\0")(Path("new.npy"))
    header(PLAIN.replace("(4,)", "(4L,)"), bytes([4, 3, 2, 1]))(Path("python2.npy"))
    for name in ("new.npy", "python2.npy"):
        names = ("--in", f"first={name}", "--in", "second=b.npy", "--out", "out_first=y.npy")
        done = kern("call", copies, "both", "--set", "n=4", *names)
        assert (done.code, done.err) == (0, "")
        assert np.load("y.npy").tolist() == [4, 3, 2, 1]


def test_outputs_are_written_whole_or_not_at_all(
    kern: Kern, copies: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("y.npy").write_text("before")
    written: list[Any] = []

    def full(file: Any, array: Any, **options: Any) -> None:
        written.append(array)
        file.write(b"half")
        if len(written) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("kern.cli.npy.npy.write_array", full)
    done = kern("call", *(copies, *CALL), "--out", "out_first=y.npy", "--out", "out_second=z.npy")
    refused(done, "an output cannot be written to z.npy: No space left on device")
    assert Path("y.npy").read_text() == "before"
    assert sorted(os.listdir()) == ["b.npy", "x.npy", "y.npy"]


def test_a_text_models_programs_can_be_called(kern: Kern, tiny: Path, work: Path) -> None:
    values: dict[str, list[Any]] = {
        "token_ids": [5],
        "positions": [0],
        "slot_mapping": [0],
        "block_table": [[0]],
        "seq_lens": [1],
    }
    values |= {"cu_seqlens_q": [0, 1], "row_slots": [0], "logits_rows": [0]}
    for name, value in values.items():
        np.save(f"{name}.npy", np.array(value))
    ins = [word for name in values for word in ("--in", f"{name}={name}.npy")]
    sets = [word for name in ("tokens", "seqs", "pages") for word in ("--set", f"{name}=1")]
    done = kern("call", tiny, "step", *sets, *ins, "--out", "next_token=next.npy", "--capacity", 16)
    assert done.code == 0, done.err
    assert np.load("next.npy").tolist() == [int(tiny_reference(tiny).logits([5])[-1].argmax())]


@pytest.mark.parametrize(
    ("options", "says"),
    [([], "note: program 'both' ran; --out NAME=FILE writes an output"), (["--time"], ""), (["--json"], "")],
)
def test_a_call_that_shows_nothing_else_says_that_it_ran(
    kern: Kern, copies: Path, work: Path, options: list[str], says: str
) -> None:
    done = kern("call", copies, *CALL, *options)

    assert done.code == 0
    assert done.err.startswith(says)
    assert (bool(done.err), bool(done.out)) == (bool(says), not says)
