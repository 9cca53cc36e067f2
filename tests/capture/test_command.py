"""`kern capture`: what it runs, what it says, what it exits with, and what it refuses."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.recorded_program import Machine

KERN = (sys.executable, "-m", "kern")
RECORDS = """
from support.fake_driver import *
program = Program()
function = program.function(program.module(b"\\0k\\0"), b"k", (4,))
for i in range(3): program.launch(function, (word(i, 4),))
program.call("cuMemsetD32_v2", DEVICE, 0, 1)
print(input())
"""


class Kern:
    """Runs `kern capture` on the machine with the fake driver."""

    def __init__(self, machine: Machine, tmp_path: Path) -> None:
        self.dump = tmp_path / "dump"
        cache = machine.recorder.parents[1]
        self.environment = machine.environment() | {"XDG_CACHE_HOME": str(cache), "CC": "cc -Werror"}

    def __call__(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run([*KERN, "capture", "-o", str(self.dump), "--", *command], environment)

    def run(self, command: list[str], environment: Mapping[str, str] = {}) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.environment | environment,
            input="typed\n",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


@pytest.fixture
def kern(machine: Machine, tmp_path: Path) -> Kern:
    return Kern(machine, tmp_path)


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert [line.startswith("kern: error[") for line in done.stderr.splitlines()].count(True) == 1
    for word in words:
        assert word in done.stderr


def test_a_command_keeps_its_streams_and_the_summary_goes_to_stderr(kern: Kern) -> None:
    done = kern(sys.executable, "-c", RECORDS)
    (folder,) = kern.dump.iterdir()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "typed\n"
    assert f"kern: {folder.name}: {sys.executable} -c" in done.stderr
    assert "  3 launches of 1 kernel, 100.00% with their module; 1 module\n" in done.stderr
    assert "  0 copies, 1 fill, 0 graphs with 0 launches; 0 not recorded\n" in done.stderr
    assert "no end" not in done.stderr


def test_children_are_recorded_each_in_its_own_folder(kern: Kern) -> None:
    child = "import subprocess, sys; [subprocess.run([sys.executable, '-c', sys.argv[1]], input=b'') for _ in 'ab']"
    done = kern(sys.executable, "-c", child, RECORDS.replace("print(input())", ""))
    assert done.returncode == 0, done.stderr
    assert len(list(kern.dump.iterdir())) == 2
    assert done.stderr.count("3 launches") == 2


def test_a_recording_without_an_end_is_reported(kern: Kern) -> None:
    done = kern(sys.executable, "-c", RECORDS + "import os; os.abort()")
    assert done.returncode == 128 + signal.SIGABRT
    assert "no end was recorded" in done.stderr


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_the_status_is_the_commands(kern: Kern, script: str, status: int) -> None:
    done = kern("sh", "-c", script)
    assert done.returncode == status
    assert "no process of the command initialised CUDA" in done.stderr


def test_options_of_the_command_are_its_own(kern: Kern) -> None:
    done = kern.run([*KERN, "capture", "-o", str(kern.dump), "sh", "-c", 'echo "$@"; exit 3', "sh", "-o", "--help"])
    assert (done.returncode, done.stdout) == (3, "-o --help\n")


def test_nothing_recorded_is_a_failure(kern: Kern) -> None:
    done = kern("true")
    assert done.returncode == 1
    assert "nothing was recorded" in done.stderr
    assert "no process of the command initialised CUDA" in done.stderr


def test_cuda_without_a_launch_is_reported_as_such(kern: Kern) -> None:
    done = kern(sys.executable, "-c", "from support.fake_driver import *; Program()")
    assert done.returncode == 1
    assert "CUDA was initialised, and nothing was launched" in done.stderr


def test_a_recorder_that_could_not_start_is_reported_with_its_log(kern: Kern) -> None:
    done = kern(sys.executable, "-c", RECORDS, FAKE_CUPTI_TAKEN="1")
    assert done.returncode == 1
    assert done.stdout == "typed\n"
    assert "log: nothing is recorded: cuptiSubscribe" in done.stderr
    assert "the recorder could not start" in done.stderr


def test_a_command_that_is_none_is_refused_and_leaves_no_folder(kern: Kern) -> None:
    refused(kern("no-such-program"), "`no-such-program` cannot be started", "No such file")
    assert not kern.dump.exists()
    kern.dump.mkdir()
    refused(kern("/"), "cannot be started", "Permission denied")
    assert kern.dump.exists()
    kern.dump /= "some/folders"
    refused(kern("no-such-program"), "cannot be started")
    assert not list(kern.dump.parents[1].iterdir())


def test_a_command_is_needed(kern: Kern) -> None:
    done = kern.run([*KERN, "capture", "-o", str(kern.dump)])
    assert done.returncode == 2
    assert "COMMAND" in done.stderr
    done = kern.run([*KERN, "capture", "--bogus", "-o", str(kern.dump), "--", "true"])
    assert done.returncode == 2
    assert "--bogus" in done.stderr


def test_a_folder_in_use_is_refused(kern: Kern) -> None:
    kern.dump.mkdir()
    (kern.dump / "file").touch()
    refused(kern("true"), "is not empty")
    assert [path.name for path in kern.dump.iterdir()] == ["file"]


@pytest.mark.parametrize("below", ["", "/below"])
def test_a_location_that_cannot_be_a_folder_is_refused(kern: Kern, below: str) -> None:
    kern.dump.touch()
    kern.dump = Path(f"{kern.dump}{below}")
    refused(kern("true"), "cannot be made or read")


def test_another_tools_injection_is_left_alone(kern: Kern) -> None:
    refused(kern("true", CUDA_INJECTION64_PATH="/tool.so"), "CUDA_INJECTION64_PATH", "/tool.so")
    assert not kern.dump.exists()


def test_a_missing_compiler_is_named(kern: Kern) -> None:
    refused(kern("true", CC="no-such-cc"), "no-such-cc")


def test_a_compiler_that_does_not_run_is_named(kern: Kern, tmp_path: Path) -> None:
    (no_program := tmp_path / "cc").write_text("neither a script nor a program")
    no_program.chmod(0o755)
    refused(kern("true", CC=str(no_program)), f"`{no_program}` does not run: Exec format error")


def test_a_recording_that_cannot_be_read_back_is_named(kern: Kern) -> None:
    folder = kern.dump / "pid-1"
    script = f"mkdir {folder}; ln -s /proc/self/mem {folder}/launches.jsonl"
    refused(kern("sh", "-c", script), "cannot be read")


def test_what_the_compiler_says_is_shown(kern: Kern) -> None:
    refused(kern("true", CC="cc -no-such-option"), "could not compile the recorder", "no-such-option")


def test_a_cache_that_cannot_be_written_is_named(kern: Kern) -> None:
    kern.dump.parent.joinpath("file").touch()
    refused(kern("true", XDG_CACHE_HOME=str(kern.dump.parent / "file")), "cannot be kept", "XDG_CACHE_HOME")


def test_the_recorder_is_compiled_once(kern: Kern, tmp_path: Path) -> None:
    (cache := tmp_path / "cache").mkdir()
    times = []
    for name in ("first", "second"):
        kern.dump = tmp_path / name
        kern("true", XDG_CACHE_HOME=str(cache))
        (library,) = (cache / "kern").glob("*.so")
        times.append(library.stat().st_mtime_ns)
    assert times[0] == times[1]
    assert {path.suffix for path in (cache / "kern").iterdir()} == {".so", ".sha256"}


def by_another(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 12345, -1)


SPOILT = {
    "others may write it": lambda path: path.chmod(0o666),
    "it belongs to another user": by_another,
    "it is a link": lambda path: path.symlink_to(path.rename(path.with_suffix(".elsewhere"))),
    "it has another hash": lambda path: path.write_bytes(b"not what was compiled"),
    "its hash may be another's": lambda path: path.with_suffix(".sha256").chmod(0o666),
    "it has no hash": lambda path: path.with_suffix(".sha256").unlink(),
    "its hash is not text": lambda path: path.with_suffix(".sha256").write_bytes(b"\xff" * 64),
}


@pytest.fixture
def cache(kern: Kern, tmp_path: Path) -> Path:
    """An empty cache, and in the compiler's place what is done in no time."""
    compiler = tmp_path / "compiler"
    compiler.write_text('while [ $# -gt 0 ]; do [ "$1" = -o ] && echo compiled >"$2"; shift; done')
    kern.environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "CC": f"sh {compiler}"}
    return tmp_path / "cache" / "kern"


@pytest.mark.parametrize("how", SPOILT)
def test_a_recorder_that_is_not_to_be_trusted_is_compiled_again(
    kern: Kern, cache: Path, tmp_path: Path, how: str
) -> None:
    kern("true")
    (library,) = cache.glob("*.so")
    SPOILT[how](library)
    kern.dump = tmp_path / "second"
    assert "nothing was recorded" in kern("true").stderr
    assert library.read_bytes() == b"compiled\n"
    assert library.with_suffix(".sha256").read_text() == hashlib.sha256(b"compiled\n").hexdigest()
    for path in (library, library.with_suffix(".sha256")):
        status = path.lstat()
        assert (status.st_uid, status.st_mode & 0o170022) == (os.geteuid(), 0o100000)


def test_no_recorder_is_taken_from_a_folder_that_others_may_write(kern: Kern, cache: Path, tmp_path: Path) -> None:
    kern("true")
    cache.chmod(0o777)
    kern.dump = tmp_path / "second"
    refused(kern("true"), "others may write it", "chmod go-w")
    assert not kern.dump.exists()


def test_doctor_says_what_recording_finds(kern: Kern, tmp_path: Path) -> None:
    done = kern.run([*KERN, "doctor", "--json"])
    found = {finding["name"]: finding["found"] for finding in json.loads(done.stdout)}
    assert Path(found["CUPTI headers"], "cupti_callbacks.h").is_file()
    assert Path(found["CUPTI library"]).is_file()


SLEEPER = "import sys, time, signal; {}; print('ready', flush=True); time.sleep(30)"


@pytest.mark.parametrize("name", ["SIGINT", "SIGQUIT"])
@pytest.mark.parametrize("handler", ["signal.SIG_DFL", "lambda *_: sys.exit(9)"])
def test_a_terminals_signal_is_the_commands_and_is_waited_for(kern: Kern, name: str, handler: str) -> None:
    number = getattr(signal, name)
    child = started(kern, SLEEPER.format(f"signal.signal({number:d}, {handler})"))
    os.killpg(child.pid, number)
    assert child.wait(timeout=30) == (9 if "exit" in handler else 128 + number)
    said = child.communicate()[1]
    assert "Traceback" not in said
    assert "nothing was recorded" in said


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_termination_is_handed_on(kern: Kern, name: str) -> None:
    number = getattr(signal, name)
    child = started(kern, SLEEPER.format(f"signal.signal({number:d}, lambda *_: sys.exit(8))"))
    child.send_signal(number)
    assert child.wait(timeout=30) == 8
    child.communicate()


def test_what_is_ignored_stays_ignored_in_the_command(kern: Kern) -> None:
    show = "import signal; print(*(signal.getsignal(n).name for n in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)))"
    script = """trap '' HUP INT; exec "$@" """
    done = kern.run(
        ["sh", "-c", script, "sh", *KERN, "capture", "-o", str(kern.dump), "--", sys.executable, "-c", show]
    )
    assert done.stdout == "SIG_IGN SIG_IGN SIG_DFL\n"


def test_a_long_command_is_cut(kern: Kern) -> None:
    done = kern(sys.executable, "-c", RECORDS, "x" * 100_000)
    assert "…\n" in done.stderr
    assert len(done.stderr) < 1000


def started(kern: Kern, program: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [*KERN, "capture", "-o", str(kern.dump), "--", sys.executable, "-c", program],
        env=kern.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.1)
    return child
