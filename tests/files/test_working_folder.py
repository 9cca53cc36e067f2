"""Folders for work under way: removed on the way out, and after a kill by whoever comes next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kern.files.working_folder import working_folder

KILLED = """
import os, sys
from pathlib import Path
from kern.files.working_folder import working_folder
with working_folder(".work-", Path(sys.argv[1])) as folder:
    (folder / "large").mkdir()
    (folder / "large" / "file").write_text("x")
    print("ready", flush=True)
    sys.stdin.read()
"""


def working(parent: Path) -> subprocess.Popen[str]:
    """A process in the middle of its work."""
    command = [sys.executable, "-c", KILLED, str(parent)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_what_a_killed_process_left_is_removed_and_what_others_work_in_stays(tmp_path: Path) -> None:
    with working(tmp_path) as killed, working(tmp_path) as alive:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert len(list(tmp_path.iterdir())) == 2
        with working_folder(".work-", tmp_path) as folder:
            left = set(tmp_path.iterdir()) - {folder}
            assert len(left) == 1
            assert (left.pop() / "large" / "file").exists()
        alive.communicate("done")
        assert alive.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_it_is_removed_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), working_folder(".work-", tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("x")
    (tmp_path / ".work-12345678").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".work-abcdefgh").write_text("a file")
    (tmp_path / ".work-longer-than-ours").mkdir()
    (tmp_path / ".work-short").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with working_folder(".work-", tmp_path):
        pass
    assert sorted(tmp_path.rglob("*")) == before


def test_another_users_folder_stays(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    (tmp_path / ".work-12345678").mkdir()
    os.chown(tmp_path / ".work-12345678", 12345, -1)
    with working_folder(".work-", tmp_path):
        pass
    assert (tmp_path / ".work-12345678").is_dir()
