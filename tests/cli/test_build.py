"""`kern build`: targets and limits of calls, each obeyed or refused in one line."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import Done, Kern
from kern import load
from kern.contracts.text import PAGE
from kern.device.host.target import host_target
from kern.kernels.compile_host import HOST_TARGETS, compile_host_modules
from kernels import emulated
from support.toy import toy_artifact

TINY = ("llama", "--random", "--config", "tiny", "--no-weights")
LEVELS = [target for target in HOST_TARGETS if target.startswith("x86-64")]
BEYOND = {
    "x86-64-v1": r"\b(pshufb|palignr|pabs[bwd]|pmulld|pblend\w+|blendv\w+|pextr[bdq]|pinsr[bdq]|ptest|round[sp][sd]|\
popcnt|pminu[wd]|pmaxs[bd])\b|\tv[a-z]",
    "x86-64-v2": r"%ymm|%zmm|\tv[a-z]",
    "x86-64-v3": r"%zmm|%k[0-7]\b|%[xy]mm(1[6-9]|2\d|3[01])\b",
}
"""Machine code of a level above: SSSE3 and later, AVX, AVX-512 (the x86-64 psABI, section 3.1.1)."""

needs_x86_64 = pytest.mark.skipif(host_target() not in LEVELS, reason="the machine is not x86-64")


def refused(done: Done, *words: str) -> None:
    assert done.code == 2, done
    said = [line for line in done.err.splitlines() if line.startswith("kern: error[")]
    assert len(said) == 1, done.err
    for word in words:
        assert word in done.err


def machine_code(folder: Path) -> str:
    modules = sorted(folder.glob("kernels/*.so"))
    command = ["objdump", "-d", "--no-show-raw-insn", *modules]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@needs_x86_64
def test_a_build_for_a_level_has_no_code_of_the_levels_above_and_runs_below(
    kern: Kern, tmp_path: Path, compiled_once: None
) -> None:
    here = LEVELS.index(host_target())
    ids, code = {}, {}
    for level in LEVELS:
        folder = tmp_path / level
        assert kern("build", *TINY[:-1], "--target", level, "-o", folder).code == 0
        steps = [step for steps in kern("inspect", folder, "--json").json["kernels"].values() for step in steps]
        assert {step["target"] for step in steps} == {level}
        code[level] = machine_code(folder)
        if level in BEYOND:
            assert re.findall(BEYOND[level], code[level]) == []
        assert (kern("verify", folder, "--target", level).code, kern("verify", folder).code) == (0, 0)
        if LEVELS.index(level) <= here:
            prompt = ("--prompt-ids", "1,2,3", "--max-tokens", 8, "--ignore-stop", "--json")
            ids[level] = kern("run", folder, *prompt).json["output_ids"]
    assert len(set(map(tuple, ids.values()))) == 1
    for level, beyond in product(LEVELS[1:], BEYOND):
        if level > beyond:  # the patterns do find such code
            assert re.search(BEYOND[beyond], code[level]), (level, beyond)


@needs_x86_64
def test_a_compiler_with_options_beyond_the_level_is_refused(
    kern: Kern, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kern.models.kernel_set.compile_host_modules", compile_host_modules
    )  # whoever keeps its results
    monkeypatch.setenv("CC", "cc -mavx512f")
    done = kern("build", *TINY, "--target", "x86-64-v3", "-o", tmp_path / "out")
    assert done.code == 1
    assert "instructions that the target does not have" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("machine", "target", "compiler"),
    [
        ("x86_64", "aarch64", "echo x86_64-linux-gnu"),
        ("aarch64", "x86-64-v3", "echo aarch64-linux-gnu"),
        ("riscv64", "aarch64", "echo riscv64-linux-gnu"),
        ("x86_64", "aarch64", "exit 1"),
    ],
)
def test_another_architecture_without_a_compiler_for_it_is_refused_in_one_line(
    kern: Kern, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str, target: str, compiler: str
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setenv("CC", f"sh -c '{compiler}'")
    done = kern("build", *TINY, "--target", target, "-o", tmp_path / "out")
    refused(done, target, f"this machine is {machine}", "-linux-gnu-gcc", "apt install gcc-")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.aarch64
@needs_x86_64
def test_a_folder_for_aarch64_is_cross_compiled_and_verified_but_not_run_here(
    kern: Kern, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated.check_installed()
    monkeypatch.setenv("CC", emulated.COMPILER)
    folder = tmp_path / "out"
    assert kern("build", *TINY[:-1], "--draft", "random", "--target", "aarch64", "-o", folder).code == 0
    assert (kern("verify", folder).code, kern("verify", folder, "--target", "aarch64").code) == (0, 0)
    assert kern("verify", folder, "--target", "host").code == 1
    done = kern("run", folder, "--prompt-ids", "1,2,3")
    assert done.code == 1
    assert f"is built for aarch64, and the device host runs {host_target()}" in done.err


@pytest.mark.parametrize("target", ["x86-64-v5", "x86-64", "x86_64-v3", "v3", "sm90", "HOST", "arm64", ""])
def test_an_unknown_target_is_refused_with_the_known_ones(kern: Kern, tmp_path: Path, target: str) -> None:
    refused(kern("build", *TINY, "--target", target, "-o", tmp_path / "out"), repr(target), "x86-64-v3", "aarch64")


@pytest.mark.parametrize("target", ["host", "sm_90a"])
@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (["--sequences", 9, "--draft", "random"], ["a draft serves up to 8 sequences", "--sequences is 9"]),
        (
            ["--sequences", 8, "--chunk", 63, "--draft", "random"],
            ["a round of this draft has 64 tokens", "--chunk allows 63"],
        ),
        (["--sequences", 600], ["600 sequences", "--chunk allows 512", "give --chunk 600"]),
        (["--sequences", 70000, "--chunk", 80000], ["--sequences is 70000", "65,535"]),
        (["--chunk", 4097], ["--chunk is 4097", "4096 positions"]),
        (["--chunk", 4, "--draft", "random"], ["a round of this draft has 8 tokens", "--chunk allows 4"]),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused_by_name(
    kern: Kern, tmp_path: Path, target: str, limits: list[object], words: list[str]
) -> None:
    refused(kern("build", *TINY, "--target", target, *limits, "-o", tmp_path / "out"), *words)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_text_model_has_no_such_limits(kern: Kern, tmp_path: Path) -> None:
    folder = toy_artifact(tmp_path / "toy")
    assert kern("inspect", folder, "--json").json["calls"] == {}
    assert "\ncalls\n" not in kern("inspect", folder).out


@pytest.mark.parametrize(
    ("limits", "sequences", "chunk"), [([], 8, 512), (["--sequences", 3, "--chunk", 16], 3, 16), (["--chunk", 1], 1, 1)]
)
def test_limits_are_obeyed_and_inspect_shows_them(
    kern: Kern, tmp_path: Path, compiled_once: None, limits: list[object], sequences: int, chunk: int
) -> None:
    folder = tmp_path / "out"
    assert kern("build", *TINY, "--target", "host", *limits, "-o", folder).code == 0
    assert kern("verify", folder).code == 1  # no weights
    assert kern("inspect", folder, "--json").json["calls"] == {"sequences": sequences, "chunk": chunk}
    shown = kern("inspect", folder).out
    assert re.search(rf"calls\n  sequences  up to {sequences}\n  chunk      up to {chunk}\n", shown)


def test_several_sequences_decode_in_one_call_as_each_does_alone(
    kern: Kern, tmp_path: Path, compiled_once: None
) -> None:
    folder, pages, steps = tmp_path / "out", 2, 10
    assert kern("build", *TINY[:-1], "--target", "host", "--sequences", 3, "-o", folder).code == 0
    prompts = [[5, 6, 7], [400], [9, 8, 7, 6, 5]]
    single = ["--max-tokens", steps, "--ignore-stop", "--json"]
    alone = [kern("run", folder, "--prompt-ids", ",".join(map(str, ids)), *single).json for ids in prompts]

    with load(folder, capacity=pages * PAGE, sequences=3) as executable:

        def place(parts: list[tuple[int, list[int], int]]) -> dict[str, int]:
            """Write the inputs of a call: of each part the sequence, its tokens and the first one's position."""
            positions = [np.arange(start, start + len(ids)) for _, ids, start in parts]
            ends = [start + len(ids) for _, ids, start in parts]
            values = {"tokens": sum(len(ids) for _, ids, _ in parts), "seqs": len(parts), "pages": pages}
            slots = [sequence * pages * PAGE + at for (sequence, _, _), at in zip(parts, positions, strict=True)]
            table = [[sequence * pages + page for page in range(pages)] for sequence, _, _ in parts]
            inputs = {
                "token_ids": np.concatenate([np.array(ids) for _, ids, _ in parts]),
                "positions": np.concatenate(positions),
                "slot_mapping": np.concatenate(slots),
                "block_table": table,
                "seq_lens": ends,
                "cu_seqlens_q": np.cumsum([0, *(len(ids) for _, ids, _ in parts)]),
                "row_slots": [sequence for sequence, _, _ in parts],
            }
            for name, array in inputs.items():
                executable.write(name, array, values)
            return values

        given = [(sequence, ids[:-1], 0) for sequence, ids in enumerate(prompts) if ids[:-1]]
        executable.run("prefill", place(given))
        values = place([(sequence, ids[-1:], len(ids) - 1) for sequence, ids in enumerate(prompts)])
        executable.run("begin", values)
        rows = []
        for _ in range(steps):
            executable.run("decode", values)
            rows.append(executable.read("next_token", values))
    assert [list(column) for column in zip(*rows, strict=True)] == [run["output_ids"] for run in alone]


def test_what_is_missing_is_said_before_anything_is_downloaded(
    kern: Kern, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_fetch(*_: object) -> None:
        pytest.fail("it began to download")

    monkeypatch.setitem(sys.modules, "gguf", None)
    monkeypatch.setattr("kern.building.source.fetch", no_fetch)
    refused(kern("build", "smollm2", "-o", tmp_path / "out"), "package gguf", "pip install")
