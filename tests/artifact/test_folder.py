"""A folder of attacks: nothing outside an artifact folder is read, and nothing endless or special inside it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kern.artifact import ArtifactFolder, open_folder
from kern.artifact.errors import (
    FileMissing,
    FileTooLarge,
    FileUnreadable,
    FolderUnreadable,
    UnsafePath,
)
from kern.artifact.folder import MAX_MODULE_BYTES, MAX_MODULES, MAX_TEXT_BYTES
from kern.manifest.reading import MAX_BYTES, read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An artifact folder's bare files."""
    folder = tmp_path / "artifact"
    (folder / "kernels").mkdir(parents=True)
    (folder / "manifest.json").write_bytes(b"{}")
    (folder / "kernels" / "a.cubin").write_bytes(b"code")
    return folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file outside the folder."""
    outside = tmp_path / "secret"
    outside.write_bytes(b"secret")
    return outside


@pytest.fixture
def folder(path: Path) -> Iterator[ArtifactFolder]:
    with open_folder(path) as folder:
        yield folder


def test_reads_what_is_there(path: Path, folder: ArtifactFolder) -> None:
    (path / "text.json").write_text("naïve")
    (path / "kernels" / "b.so").write_bytes(b"more")
    assert folder.path == path
    assert folder.manifest_bytes() == b"{}"
    assert folder.module_names() == ("a.cubin", "b.so")
    assert folder.read_module("a.cubin") == b"code"
    assert folder.read_text("text.json") == "naïve"


def test_no_kernels_is_no_modules(path: Path, folder: ArtifactFolder) -> None:
    (path / "kernels" / "a.cubin").unlink()
    (path / "kernels").rmdir()
    assert folder.module_names() == ()
    with pytest.raises(FileMissing):
        folder.read_module("a.cubin")


def test_the_folder_itself_may_be_reached_through_a_link(path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    with open_folder(tmp_path / "link") as folder:
        assert folder.read_module("a.cubin") == b"code"


def test_the_open_folder_stays_the_same_when_its_path_changes_hands(path: Path, folder: ArtifactFolder) -> None:
    path.rename(path.with_name("moved"))
    path.mkdir()
    (path / "manifest.json").write_bytes(b"[]")
    assert folder.manifest_bytes() == b"{}"


@pytest.mark.parametrize("name", ["nowhere", "file", "file/below", "nul\0nul", "x" * 5000])
def test_what_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FolderUnreadable) as refusal:
        open_folder(tmp_path / name)
    assert refusal.value.exit_code == 2


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match=r"has no manifest\.json") as refusal:
        open_folder(tmp_path)
    assert (refusal.value.exit_code, "kern build" in refusal.value.help) == (2, True)


def test_refusing_a_folder_leaves_nothing_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(FileMissing):
            open_folder(tmp_path)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "/etc/passwd",
        "../secret",
        "a/../a.cubin",
        "./a.cubin",
        "a.cubin/",
        "a\0",
        "a\nb",
        "x" * 256,
        "é" * 128,
    ],
)
def test_names_that_are_no_plain_names_are_refused(folder: ArtifactFolder, secret: Path, name: str) -> None:
    for read_file in (folder.read_module, folder.read_text):
        with pytest.raises(UnsafePath) as refusal:
            read_file(name)
        assert refusal.value.exit_code == 1
        assert refusal.value.message.isprintable()


def _link(at: Path, outside: Path) -> None:
    at.symlink_to(outside)


def _inner_link(at: Path, outside: Path) -> None:
    at.symlink_to("manifest.json")


def _dangling_link(at: Path, outside: Path) -> None:
    at.symlink_to("nowhere")


def _link_to_itself(at: Path, outside: Path) -> None:
    at.symlink_to(at.name)


def _fifo(at: Path, outside: Path) -> None:
    os.mkfifo(at)


def _directory(at: Path, outside: Path) -> None:
    at.mkdir()


def _socket(at: Path, outside: Path) -> None:
    here = os.getcwd()
    os.chdir(at.parent)  # a socket's whole path may have 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(at.name)
    finally:
        os.chdir(here)


@pytest.mark.parametrize("plant", [_link, _inner_link, _dangling_link, _link_to_itself, _fifo, _directory, _socket])
def test_what_is_no_regular_file_is_refused(
    path: Path, folder: ArtifactFolder, secret: Path, plant: Callable[[Path, Path], None]
) -> None:
    (path / "manifest.json").unlink()
    for name in ("manifest.json", "text.json", "weights.safetensors", "kernels/evil.cubin"):
        plant(path / name, secret)
    assert "evil.cubin" in folder.module_names()
    for read_file in (
        folder.manifest_bytes,
        lambda: folder.read_text("text.json"),
        folder.weights,
        lambda: folder.read_module("evil.cubin"),
    ):
        with pytest.raises((UnsafePath, FileUnreadable)) as refusal:
            read_file()
        if plant is not _socket:  # a socket does not open at all
            assert type(refusal.value) is UnsafePath


def test_kernels_behind_a_link_are_refused(path: Path, tmp_path: Path) -> None:
    (path / "kernels").rename(tmp_path / "elsewhere")
    (path / "kernels").symlink_to(tmp_path / "elsewhere")
    with open_folder(path) as folder:
        with pytest.raises(UnsafePath, match="is a link"):
            folder.read_module("a.cubin")
        with pytest.raises(UnsafePath, match="is a link"):
            folder.module_names()


def test_kernels_that_are_a_file_are_refused(path: Path) -> None:
    (path / "kernels" / "a.cubin").unlink()
    (path / "kernels").rmdir()
    (path / "kernels").write_bytes(b"")
    with open_folder(path) as folder:
        with pytest.raises(UnsafePath, match="is not a directory"):
            folder.read_module("a.cubin")
        with pytest.raises(UnsafePath, match="is not a directory"):
            folder.module_names()


def test_a_device_reached_by_a_hard_path_is_refused(path: Path) -> None:
    with pytest.raises(UnsafePath), open_folder(path) as folder:
        folder.weights(Path("/dev/zero"))


def test_huge_sparse_files_are_refused_unread(path: Path, folder: ArtifactFolder) -> None:
    for name, limit in (("kernels/a.cubin", MAX_MODULE_BYTES), ("text.json", MAX_TEXT_BYTES)):
        (path / name).touch()
        os.truncate(path / name, limit + 1)
    with pytest.raises(FileTooLarge, match="268,435,457 bytes"):
        folder.read_module("a.cubin")
    with pytest.raises(FileTooLarge, match="67,108,865 bytes"):
        folder.read_text("text.json")


def test_a_huge_manifest_is_read_no_further_than_its_reader_needs_to_refuse_it(path: Path) -> None:
    os.truncate(path / "manifest.json", 2**40)
    with open_folder(path) as folder:
        data = folder.manifest_bytes()
    assert len(data) == MAX_BYTES + 1
    reading = read(data)
    assert reading.manifest is None
    assert len(reading.diagnostics) == 1


def test_too_many_entries_are_refused(path: Path, folder: ArtifactFolder) -> None:
    for index in range(MAX_MODULES):
        os.link(path / "manifest.json", path / "kernels" / f"{index}.cubin")
    with pytest.raises(FileTooLarge, match="more than 4,096 entries"):
        folder.module_names()


def test_text_that_is_none_is_refused(path: Path, folder: ArtifactFolder) -> None:
    (path / "text.json").write_bytes(b"ok\xff")
    with pytest.raises(FileUnreadable, match="invalid byte at 2") as refusal:
        folder.read_text("text.json")
    assert refusal.value.exit_code == 2


def test_missing_files_are_named(folder: ArtifactFolder) -> None:
    with pytest.raises(FileMissing, match=r"kernels/b\.cubin does not exist"):
        folder.read_module("b.cubin")
    with pytest.raises(FileMissing, match=r"text\.json does not exist"):
        folder.read_text("text.json")
    with pytest.raises(FileMissing, match=r"weights\.safetensors does not exist"):
        folder.weights()


def test_weights_stay_open_with_the_folder_and_close_with_it(path: Path) -> None:
    (path / "weights.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with open_folder(path) as folder:
        weights = folder.weights()
        assert folder.weights() is weights
        (path / "weights.safetensors").unlink()
        assert os.fstat(weights.fileno()).st_size == weights.size == 10
    with pytest.raises(ValueError, match="closed"):
        weights.fileno()
    assert weights.tensors == {}


def test_weights_may_come_from_anywhere(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "w.safetensors"
    elsewhere.write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    (tmp_path / "link").symlink_to(elsewhere)
    with open_folder(path) as folder:
        assert folder.weights(tmp_path / "link").size == 10


def test_a_closed_folder_reads_nothing_even_when_its_descriptor_is_used_again(path: Path, tmp_path: Path) -> None:
    folder = open_folder(path)
    folder.close()
    folder.close()
    other = os.open(path, os.O_RDONLY)
    try:
        for read_file in (folder.manifest_bytes, folder.module_names, lambda: folder.read_module("a.cubin")):
            with pytest.raises(FolderUnreadable, match="was closed"):
                read_file()
    finally:
        os.close(other)
