"""Every reader accepts or refuses what the fuzz targets make, and the driver sees every way not to."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz import __main__ as command
from fuzz import worker
from fuzz.campaign import fuzz
from fuzz.target import ACCEPTED, Contradiction, Target, input_of
from fuzz.targets import TARGETS
from kern.manifest.errors import KernError

SEED = 11
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run_finds_nothing(name: str) -> None:
    target = TARGETS[name]
    (campaign,) = fuzz([target], SEED, inputs=target.short)
    assert {kind: [result.index for result, _ in kept] for kind, kept in campaign.findings.items()} == {}
    assert campaign.outcomes.total() == target.short
    assert len(target.seeds()) <= campaign.outcomes[ACCEPTED] < 0.9 * target.short


def digest(seed: int) -> str:
    """A hash of inputs of all targets."""
    inputs = [
        input_of(target, target.seeds(), seed, index)
        for target in TARGETS.values()
        for index in range(len(target.seeds()), 30)
    ]
    assert len(set(inputs)) > 0.8 * len(inputs)
    return hashlib.sha256(b"".join(hashlib.sha256(data).digest() for data in inputs)).hexdigest()


def test_a_seed_gives_the_same_inputs_in_every_process() -> None:
    code = f"from fuzz.test_targets import digest; print(digest({SEED}))"
    environment = os.environ | {"PYTHONPATH": str(TESTS), "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest(SEED) != digest(SEED + 1)


def _raise(error: BaseException) -> str:
    raise error


def _endless() -> str:
    while True:
        pass


def _sleep() -> None:
    time.sleep(1000)


WRONG: dict[str, tuple[str, Callable[[], object]]] = {
    "error": ("ValueError", lambda: int("x")),
    "panic": ("BaseException", lambda: _raise(BaseException("panicked"))),
    "exit": ("SystemExit", lambda: sys.exit(0)),
    "nameless": ("nameless: KernError", lambda: _raise(KernError(""))),
    "contradiction": ("contradiction: two readers", lambda: _raise(Contradiction("two readers: a and b"))),
    "loop": ("hang: more than 0.2 s", _endless),
    "sleep": ("hang: no answer", _sleep),
    "crash": ("killed by SIGSEGV", lambda: ctypes.string_at(8)),
    "abort": ("killed by SIGABRT", os.abort),
    "quit": ("ended the process with status 3", lambda: os._exit(3)),
    "memory": ("memory: more than 64 MiB", lambda: b"x" * 2**27),
    "address space": ("MemoryError", lambda: bytearray(2**33)),
}


def toy(does: Callable[[], object]) -> Target:
    """Accepts seeds, refuses most of the rest, and does something for one byte in 32."""

    def run(data: bytes, folder: Path) -> str:
        (folder / "input").write_bytes(data)
        if data[0] % 32 == 3:
            does()
        return ACCEPTED if data == b"\0" else "refused: toy"

    return Target("toy", lambda: [b"\0"], lambda random, data, others: random.randbytes(1), run, 40, 0.2, 2**26)


@pytest.mark.parametrize("name", WRONG)
def test_every_other_end_is_a_finding_and_the_rest_is_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, does = WRONG[name]
    if does is _sleep:
        monkeypatch.setattr(worker, "WAIT", 2.0)
    target = toy(does)
    bad = [index for index in range(24) if input_of(target, [b"\0"], 6, index)[0] % 32 == 3]
    assert 0 < len(bad) < 4
    (campaign,) = fuzz([target], 6, inputs=24)
    (kind,) = campaign.findings
    assert kind.startswith(expected)
    assert (campaign.found, campaign.outcomes.total()) == (len(bad), 24)
    assert [result.index for result, _ in campaign.findings[kind]] == bad[:3]


def test_a_seed_that_is_refused_is_a_finding() -> None:
    target = toy(lambda: None)
    broken = Target("toy", lambda: [b"\1"], target.change, target.run, 1)
    assert list(fuzz([broken], 1, inputs=1)[0].findings) == ["a seed was refused: toy"]


def test_the_command_saves_findings_and_runs_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TARGETS, "toy", toy(lambda: int("x")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fuzz", "toy", "--minutes", "0.0001", "--seed", "6"])
    assert command.main() == 1
    seed, head, row, *found = capsys.readouterr().out.splitlines()
    assert (seed, head.split()[:4]) == ("seed 6, 0.0001 minutes", ["target", "inputs", "accepted", "findings"])
    name, inputs, accepted, findings, *_, code, refused = row.split()
    assert (name, inputs, code) == ("toy", "200", "toy")
    assert int(accepted) + int(findings) + int(refused) == 200
    paths = sorted(Path("build/fuzz").glob("*.input"))
    assert len(paths) == len(found) == min(int(findings), 3)
    assert all(
        path.read_bytes()[0] % 32 == 3 and "ValueError" in path.with_suffix(".txt").read_text() for path in paths
    )
    monkeypatch.setattr(sys, "argv", ["fuzz", "--again", *map(str, paths)])
    assert command.main() == 1
    assert "invalid literal for int()" in capsys.readouterr().out


def test_inputs_that_reach_new_lines_are_kept() -> None:
    (grown,) = fuzz([TARGETS["safetensors"]], SEED, inputs=240, grow=True)
    (again,) = fuzz([TARGETS["safetensors"]], SEED, inputs=240, grow=True)
    assert len(grown.corpus) > len(TARGETS["safetensors"].seeds())
    assert grown.corpus == again.corpus
    assert any(name.endswith("artifact/weights.py") for name, _ in grown.seen)
