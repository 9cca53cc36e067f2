"""A file is written as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from kern.files.regular_file import whole_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"old")
    return tmp_path / "file"


def test_the_new_file_takes_the_place_of_the_old_one(path: Path) -> None:
    with whole_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"

    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def interrupted(path: Path) -> None:
    with whole_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def test_an_error_leaves_the_old_file_and_nothing_else(path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(path)

    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_cannot_be_replaced_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(OSError, match="folder"), whole_file(tmp_path / "folder") as file:
        file.write(b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o755])
def test_the_file_has_the_permissions_that_were_asked_for(path: Path, mode: int) -> None:
    with whole_file(path, mode):
        pass

    assert path.stat().st_mode & 0o777 == mode
