"""Small files that took gigabytes or minutes: each is answered within a bound of memory, and long before 60 s."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from support.growing import narrowing, surrogates, text, unknown_names, unpinned
from support.toy import toy_artifact

MEMORY = 700 * 2**20
SECONDS = 60


def verify(path: Path, memory: int = MEMORY) -> subprocess.CompletedProcess[str]:
    """`kern verify` in its own process with a limit on its address space; the test fails if it hangs."""
    command = [sys.executable, "-m", "kern", "verify", str(path)]
    limits = (memory, memory)
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limits),
    )


def junk(folder: Path) -> Path:
    """An artifact whose steps pin no file, with thousands of empty files."""
    (folder / "kernels").mkdir()
    for index in range(1500):
        (folder / "kernels" / f"{index}.cubin").touch()
    (folder / "manifest.json").write_bytes(text(unpinned(2000)))
    return folder


def inside(key: str, members: int) -> bytes:
    """Halves of characters, each with the key in its pointer."""
    halves = ", ".join(f'"{index}": "\\ud800"' for index in range(members))
    return f'{{"{key}": {{{halves}}}}}'.encode()


def manifest(of: Callable[[], bytes]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / "m.json").write_bytes(of())
        return folder / "m.json"

    return write


CASES: Mapping[str, tuple[Callable[[Path], Path], str, str]] = {
    "narrowing programs": (manifest(lambda: text(narrowing(8000, 8000))), "K0901", "7,999 errors"),
    "halves of characters": (manifest(lambda: text(surrogates(400_000))), "K0112", "1,001 errors"),
    "faults inside an overlong key": (manifest(lambda: inside("n" * 2_000_000, 2000)), "K0112", "1,001 errors"),
    "empty kernel files": (junk, "K1004", "1,500 errors"),
    "unknown names": (manifest(lambda: text(unknown_names(150, 60, 8, 150))), "K0607", "1,650 errors"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_answered_within_bounds(case: str, tmp_path: Path) -> None:
    write, code, errors = CASES[case]
    done = verify(write(tmp_path))
    assert done.returncode == 1, done.stderr[-2000:]
    assert f"error[{code}]" in done.stderr
    assert errors in done.stderr.splitlines()[-1]
    assert len(done.stderr) < 100_000


def test_a_lack_of_memory_is_one_line_with_its_cause(tmp_path: Path) -> None:
    toy = toy_artifact(tmp_path / "artifact")
    os.truncate(toy / "kernels" / "toy.so", 200 * 2**20)
    done = verify(toy, 150 * 2**20)
    assert done.returncode == 2
    message, help = done.stderr.splitlines()
    assert message == "kern: error[limit-reached]: memory ran out"
    assert help == "help: the limit on memory is 157,286,400 bytes (ulimit -v): raise it"


def test_a_small_folder_takes_little_memory(tmp_path: Path) -> None:
    """A kernel file of 16 KB was read into 256 MiB."""
    toy = toy_artifact(tmp_path / "artifact")
    done = verify(toy, 150 * 2**20)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{toy}: ok\n", "")
