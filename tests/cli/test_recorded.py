"""`kern build --capture`: what it writes, and how it says what a recording refutes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from cli.conftest import Kern
from kern.checkpoints.config import PRESETS
from support.vllm_recording import record

TINY = PRESETS["qwen3"]["tiny"]


def test_the_command_builds_and_says_what_is_refuted(tmp_path: Path, kern: Kern) -> None:
    options = ("build", "qwen3", "--random", "--config", "tiny", "--no-weights", "--capture")
    done = kern(*options, record(tmp_path / "dump", TINY), "-o", tmp_path / "out")
    assert (done.code, done.out) == (0, "")
    assert "for sm_90a" in done.err
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["meta"]["model"] == "qwen3 tiny"

    other = record(tmp_path / "other", replace(TINY, layers=3))
    done = kern(*options, other, "-o", tmp_path / "more")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("kern: error[assumption-refuted]: the recording refutes `layers`: pass ")
    assert ": attention is launched 3 times; expected: 2\nhelp: " in done.err
    assert not (tmp_path / "more").exists()


def test_a_dump_that_is_none_is_a_wrong_use(tmp_path: Path, kern: Kern) -> None:
    done = kern("build", "qwen3", "--random", "--config", "tiny", "--capture", tmp_path / "no", "-o", tmp_path / "out")

    assert done.code == 2
    assert str(tmp_path / "no") in done.err
    assert not (tmp_path / "out").exists()
