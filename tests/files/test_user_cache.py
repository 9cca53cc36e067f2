"""The user's cache is where the XDG Base Directory Specification has it, for all that keep something there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kern.capture import recorder_library
from kern.checkpoints.fetch import SMOLLM2, fetch
from kern.device.cuda.matmul_cache import AlgorithmCache
from kern.files.user_cache import NoCacheFolder, UntrustedCache, locked, make_cache, open_trusted, user_cache
from kern.toolchain.cuda_headers import find_toolkit


def test_the_variable_names_the_folder_that_holds_kerns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    assert user_cache() == tmp_path / "kern"


@pytest.mark.parametrize("value", [None, "", "cache", "./cache", "~/cache"])
def test_without_an_absolute_path_it_is_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    if value is None:
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", value)

    assert user_cache() == Path("/home/someone/.cache/kern")


@pytest.mark.parametrize(
    "use",
    [
        lambda: fetch(SMOLLM2, lambda done, total: None),
        lambda: AlgorithmCache("a GPU", 1),
        lambda: recorder_library(find_toolkit(), ["cc"]),
    ],
    ids=["fetched", "measured", "compiled"],
)
def test_without_a_home_the_variable_is_asked_for(monkeypatch: pytest.MonkeyPatch, use: Callable[[], object]) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(Path, "home", homeless)

    with pytest.raises(NoCacheFolder, match="no home folder") as caught:
        use()

    assert "absolute path, in XDG_CACHE_HOME" in caught.value.help
    assert caught.value.exit_code == 2


def as_another_users(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file belong to somebody else than this process's user and root."""
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)


def as_a_link(path: Path) -> None:
    path.symlink_to(path.rename(path.with_suffix(".elsewhere")))


def as_a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_zeros(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def as_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


UNTRUSTED = {
    "a link": (as_a_link, "it is a link"),
    "a fifo": (as_a_fifo, "not a regular file"),
    "endless": (as_zeros, "it is a link"),
    "a folder": (as_a_folder, "not a regular file"),
    "of a group": (lambda path: path.chmod(0o660), "others may write it .its mode is 0660"),
    "of all": (lambda path: path.chmod(0o606), "others may write it .its mode is 0606"),
}


@pytest.mark.parametrize("kind", UNTRUSTED)
def test_a_file_that_another_may_have_written_is_not_opened(tmp_path: Path, kind: str) -> None:
    change, why = UNTRUSTED[kind]
    path = tmp_path / "file"
    path.write_text("x")
    change(path)
    with pytest.raises(UntrustedCache, match=f"{path} is not used: {why}|{why}"):
        open_trusted(path)
    with pytest.raises(UntrustedCache, match=why), locked(path):
        pass


def test_a_file_of_another_user_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kern" / "file"
    make_cache(path.parent)
    path.write_text("x")
    with open_trusted(path) as file:
        assert file.read() == b"x"
    as_another_users(path, monkeypatch)
    with pytest.raises(UntrustedCache, match="belongs to another user"):
        open_trusted(path)


def test_no_file_of_a_folder_that_others_may_write_is_opened(tmp_path: Path) -> None:
    folder = tmp_path / "kern"
    make_cache(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "file").write_text("x")
    folder.chmod(0o777)
    with pytest.raises(UntrustedCache, match=r"others may write it \(its mode is 0777\)") as caught:
        open_trusted(folder / "file")
    assert f"chmod go-w {folder}" in caught.value.help
    with pytest.raises(UntrustedCache):
        make_cache(folder)


def test_a_lock_leaves_what_it_is_taken_on_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("kept")
    with locked(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text() == "kept"
