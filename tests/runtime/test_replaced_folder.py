"""A folder that a build replaces while it is read: a reader that has opened it reads all of it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import kern
from kern.artifact import folder_lock, open_folder
from kern.artifact.errors import FolderReplaced
from kern.building.atomic_folder import replacing
from support.toy import toy_artifact

SECONDS = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return toy_artifact(tmp_path / "model")


def replace(path: Path, source: Path | None = None) -> None:
    """What a build with --force does when all is written, with a copy of `source`, or of what is there."""
    with replacing(path, force=True) as new:
        shutil.copytree(source or path, new, dirs_exist_ok=True)


@contextmanager
def replacement(path: Path) -> Iterator[threading.Thread]:
    """The folder is replaced when the body begins; what was there may wait for its readers."""
    before = path.stat().st_ino
    thread = threading.Thread(target=replace, args=(path,))
    thread.start()
    while path.stat().st_ino == before:
        assert thread.is_alive() or path.stat().st_ino != before
    yield thread
    thread.join(SECONDS)
    assert not thread.is_alive()


def replaced_at(call: int, path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let the folder be replaced just before the n-th opening of a file; how many there were."""
    opening, calls, entered = os.open, [0], []

    def open_(name: Any, *arguments: Any, **options: Any) -> int:
        if threading.current_thread() is threading.main_thread():
            calls[0] += 1
            if calls[0] == call:
                with_replacement = replacement(path)
                with_replacement.__enter__()
                entered.append(with_replacement)
        return opening(name, *arguments, **options)

    def done() -> int:
        monkeypatch.setattr(os, "open", opening)
        for each in entered:
            each.__exit__(None, None, None)
        return calls[0]

    monkeypatch.setattr(os, "open", open_)
    return done


def test_a_folder_replaced_before_any_of_its_files_is_opened_is_loaded_completely(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = 0
    while True:
        call += 1
        done = replaced_at(call, path, monkeypatch)
        try:
            with kern.load(path, capacity=8):
                pass
        finally:
            calls = done()
        if call > calls:
            break
    assert calls >= 4  # the folder, its manifest, kernels and weights
    assert [each.name for each in path.parent.iterdir()] == ["model"]


def test_a_folder_replaced_and_removed_before_it_is_locked_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, replaced = fcntl.flock, [0]

    def lock_late(directory: int, kind: int) -> None:
        if kind & fcntl.LOCK_SH and replaced[0] < 3:
            replaced[0] += 1
            replace(path)
        lock(directory, kind)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with kern.load(path, capacity=8):
        assert replaced == [3]


def test_a_reader_keeps_what_it_opened_and_it_is_removed_afterwards(
    path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    module = (path / "kernels").iterdir().__next__()
    image = module.read_bytes()
    source = shutil.copytree(path, tmp_path_factory.mktemp("source") / "model")
    with open_folder(path) as folder:
        with replacing(path, force=True) as new:
            (new / "manifest.json").write_text("{}")
            waiting = threading.Thread(target=replace, args=(path, source))
            waiting.start()
            while len(list(path.parent.iterdir())) < 3:
                assert waiting.is_alive()
            folder_lock_held = folder.module_names()
            assert folder_lock_held == (module.name,)
            assert folder.read_module(module.name) == image
            folder.close()
        waiting.join(SECONDS)
    assert [each.name for each in path.parent.iterdir()] == ["model"]


def test_another_process_waits_for_the_reader(path: Path) -> None:
    code = "import sys; sys.path[:0] = sys.argv[2:]; from pathlib import Path; "
    code += "from runtime.test_replaced_folder import replace; replace(Path(sys.argv[1]))"
    before = path.stat().st_ino
    with open_folder(path) as folder:
        build = subprocess.Popen([sys.executable, "-c", code, str(path), str(Path(__file__).parents[1])])
        while path.stat().st_ino == before:
            assert build.poll() is None
        (name,) = folder.module_names()
        assert folder.read_module(name) == (path / "kernels" / name).read_bytes()
        assert build.poll() is None
    assert build.wait(SECONDS) == 0
    assert [each.name for each in path.parent.iterdir()] == ["model"]


def test_a_reader_that_takes_too_long_gets_an_error_of_its_own_and_no_diagnostic(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lock, "_PATIENCE_S", 0)
    name = next((path / "kernels").iterdir()).name
    for read in (lambda: folder.read_module(name), lambda: folder.module_names(), lambda: folder.manifest_bytes()):
        with open_folder(path) as folder:
            replace(path)
            with pytest.raises(FolderReplaced, match=f"{path} was moved, replaced or removed while it was read"):
                read()


@pytest.mark.parametrize("refusal", [BlockingIOError, OSError])
def test_folders_are_read_and_replaced_where_locks_are_not_supported(
    path: Path, monkeypatch: pytest.MonkeyPatch, refusal: type[OSError]
) -> None:
    def no_locks(*arguments: object) -> None:
        raise refusal

    monkeypatch.setattr(folder_lock, "_PATIENCE_S", 0)
    monkeypatch.setattr(fcntl, "flock", no_locks)
    if refusal is OSError:
        replace(path)
    with open_folder(path) as folder:
        assert folder.manifest_bytes()
