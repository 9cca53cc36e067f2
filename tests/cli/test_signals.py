"""Signals end a command soon, whatever it waits for, and leave neither files nor processes behind."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.processes import ONE_FAMILY, started
from support.recordings import Recorder

SECONDS = 60
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGXCPU: 152}


class Building:
    """A build that has come to the C compiler, which takes for ever."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pids = folder / "work", folder / "pids"
        for each in (self.folder, self.pids):
            each.mkdir()
        compiler = folder / "compiler"
        compiler.write_text(f"touch {self.pids}/$$; sleep 1000")
        self.environment = {**os.environ, "TMPDIR": str(self.folder), "CC": f"sh {compiler}"}
        output = self.folder / "out"
        self.command = [sys.executable, "-m", "kern", "build", "llama", "--random", "--config", "tiny"]
        self.command += ["--target", "host", "-o", str(output)]

    def wait_for_compilers(self) -> None:
        until = time.monotonic() + SECONDS
        while len(list(self.pids.iterdir())) < 2:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert list(self.folder.iterdir())

    def nothing_is_left(self) -> bool:
        return not list(self.folder.iterdir()) and not any(map(alive, self.pids.iterdir()))


def alive(pid: Path) -> bool:
    return Path("/proc", pid.name, "cmdline").exists() and Path("/proc", pid.name, "cmdline").read_text() != ""


@pytest.fixture
def building(tmp_path: Path) -> Building:
    return Building(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGXCPU], ids=["SIGINT", "SIGXCPU"])
def test_a_signal_ends_a_build_and_its_compilers(building: Building, number: signal.Signals) -> None:
    with started(building.command, env=building.environment, stderr=subprocess.PIPE, text=True) as running:
        building.wait_for_compilers()
        running.send_signal(number)
        _, err = running.communicate(timeout=SECONDS)
    assert running.returncode == CODES[number]
    assert "Traceback" not in err
    assert (err == "kern: error[limit-reached]: the limit on processor time (ulimit -t) was reached\n") == (
        number == signal.SIGXCPU
    )
    assert building.nothing_is_left()


def test_a_terminal_that_is_closed_leaves_nothing_behind(building: Building) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(building.command[0], building.command, building.environment)
    building.wait_for_compilers()
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) != 0
    assert building.nothing_is_left()


def test_a_second_signal_does_not_stop_the_cleaning_up(building: Building) -> None:
    with started(building.command, env=building.environment, stderr=subprocess.PIPE) as running:
        building.wait_for_compilers()
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
            running.send_signal(number)
        running.communicate(timeout=SECONDS)
    assert running.returncode in (CODES[signal.SIGHUP], CODES[signal.SIGTERM])
    assert building.nothing_is_left()


def test_what_a_killed_build_left_is_removed_by_the_next(building: Building) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        with started(building.command, env=building.environment, stderr=subprocess.PIPE) as running:
            building.wait_for_compilers()
            pids = [int(path.name) for path in building.pids.iterdir()]
            running.send_signal(number)
            running.communicate(timeout=SECONDS)
        if number == signal.SIGKILL:
            assert list(building.folder.iterdir())
            for pid in pids:
                os.killpg(pid, signal.SIGKILL)
            for path in building.pids.iterdir():
                path.unlink()
    assert running.returncode == CODES[signal.SIGTERM]
    assert building.nothing_is_left()


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Path]:
    """A record that takes seconds to read."""
    recorder = Recorder(tmp_path / "dump")
    kernel = recorder.kernel("work", None, ())
    recorder.write("graph", graph=1, nodes=[{"kernel": kernel, "params": []}] * 1_000)
    for _ in range(400):
        recorder.write("graph_launch", graph=1)
    recorder.end()
    return tmp_path / "dump"


def uses(pid: int, path: Path) -> bool:
    """Whether a process has a file open, or mapped."""
    try:
        mapped = str(path) in Path(f"/proc/{pid}/maps").read_text()
        return mapped or any(os.path.samefile(link, path) for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def interrupted(command: list[str], ready: Callable[[int], bool], environment: dict[str, str]) -> None:
    full = [sys.executable, "-m", "kern", *command]
    with started(full, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        while not ready(running.pid):
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=SECONDS)
    assert running.returncode == 130
    assert b"Traceback" not in err


def test_an_interrupt_ends_mining(record: Path) -> None:
    path = next(record.iterdir()) / "launches.jsonl"
    interrupted(["mine", str(record)], lambda pid: uses(pid, path), {**os.environ})


def test_an_interrupt_ends_fetching_and_what_fetches(tmp_path: Path) -> None:
    """pip waits for an index that accepts a connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as index:
        index.settimeout(SECONDS)
        url = f"http://127.0.0.1:{index.getsockname()[1]}/simple"
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PIP_CONFIG_FILE": "/dev/null"}
        environment |= {"PIP_INDEX_URL": url, "PIP_NO_INDEX": "0", "PIP_FIND_LINKS": "", "NO_PROXY": "*"}
        environment |= {"PIP_EXTRA_INDEX_URL": ""}
        connected: list[socket.socket] = []

        def ready(pid: int) -> bool:
            connected.append(index.accept()[0])
            return True

        interrupted(["build", "smollm2", "--target", "host", "-o", str(tmp_path / "out")], ready, environment)
        assert list((tmp_path / "cache" / "kern").iterdir()) == []
        assert not (tmp_path / "out").exists()


@ONE_FAMILY
def test_an_interrupt_ends_loading(tiny: Path) -> None:
    weights = tiny / "weights.safetensors"
    command = ["run", str(tiny), "--prompt-ids", "1,2,3", "--max-tokens", "100000", "--ignore-stop"]
    interrupted(command, lambda pid: uses(pid, weights), {**os.environ})
