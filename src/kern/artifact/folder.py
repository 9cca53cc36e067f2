"""The artifact folder on disk: every file is opened below one directory, without links, within limits."""

from __future__ import annotations

import itertools
import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final

from kern.artifact.errors import (
    ArtifactError,
    FileMissing,
    FileTooLarge,
    FileUnreadable,
    FolderReplaced,
    FolderUnreadable,
    UnsafePath,
)
from kern.artifact.folder_lock import is_at, open_shared
from kern.artifact.weights import WeightsFile, open_weights
from kern.files.regular_file import NotRegular, open_regular
from kern.manifest.limits import check_limit
from kern.manifest.reading import MAX_BYTES

MANIFEST: Final = "manifest.json"
KERNELS: Final = "kernels"
WEIGHTS: Final = "weights.safetensors"

MAX_MODULE_BYTES: Final = 2**28
"""Largest kernel file that is read."""
MAX_MODULES: Final = 4096
"""Most entries that the folder `kernels` may have."""
MAX_TEXT_BYTES: Final = 2**26
"""Largest other file next to the manifest that is read."""


class ArtifactFolder:
    """An open artifact folder. Made by `open_folder`; closes with its context."""

    def __init__(self, path: Path, directory: int) -> None:
        self.path = path
        self._directory = directory
        self._open = ExitStack()
        self._open.callback(os.close, directory)
        self._weights: tuple[Path | None, WeightsFile] | None = None

    def __enter__(self) -> ArtifactFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every file of the folder. A second call does nothing."""
        self._open.close()
        self._directory = -1

    def manifest_bytes(self) -> bytes:
        """The manifest, at most one byte more than its reader accepts.

        Raises FileMissing, FileUnreadable, UnsafePath.
        """
        return self._read(self._directory, MANIFEST, MANIFEST, MAX_BYTES + 1, whole=False)

    def module_names(self) -> tuple[str, ...]:
        """The names in `kernels`, sorted, whatever they are; none if that folder does not exist.

        Raises UnsafePath if `kernels` is not a directory or is a link, FileTooLarge if it has too many entries.
        """
        try:
            directory = self._kernels()
        except FileMissing:
            return ()
        try:
            with os.scandir(directory) as entries:
                names = [entry.name for entry in itertools.islice(entries, MAX_MODULES + 1)]
        finally:
            os.close(directory)
        if not self._has_manifest():
            self._check_there()
        if len(names) > MAX_MODULES:
            raise FileTooLarge(
                f"{self.path / KERNELS} has more than {MAX_MODULES:,} entries, the limit",
                "keep only the kernel files that the manifest uses",
            )
        return tuple(sorted(names))

    def read_module(self, name: str) -> bytes:
        """The bytes of `kernels/NAME`.

        Raises FileMissing, FileUnreadable, UnsafePath and, beyond MAX_MODULE_BYTES, FileTooLarge.
        """
        _check_name(name, f"{KERNELS}/{name}")
        directory = self._kernels()
        try:
            return self._read(directory, name, f"{KERNELS}/{name}", MAX_MODULE_BYTES)
        finally:
            os.close(directory)

    def read_text(self, name: str) -> str:
        """The UTF-8 text of the file `name` next to the manifest.

        Raises FileMissing, FileUnreadable (also if it is not UTF-8), UnsafePath and, beyond MAX_TEXT_BYTES,
        FileTooLarge.
        """
        _check_name(name, name)
        data = self._read(self._directory, name, name, MAX_TEXT_BYTES)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FileUnreadable(
                f"{self.path / name} is not UTF-8: invalid byte at {error.start}", "write it again"
            ) from None

    def weights(self, path: Path | None = None) -> WeightsFile:
        """The weights file: `weights.safetensors` of the folder, or the file at `path`.

        It is opened once: later calls give the same open file, which closes with the folder. So the
        checked file is the one that is read. Raises FileMissing, FileUnreadable, UnsafePath, BadWeights.
        """
        if self._weights is not None and self._weights[0] == path:
            return self._weights[1]
        if path is not None:
            file = open_weights(path)
        else:
            descriptor = self._file(self._directory, WEIGHTS, WEIGHTS)
            file = WeightsFile.adopt(descriptor, self.path / WEIGHTS)
        self._open.callback(file.close)
        self._weights = (path, file)
        return file

    def _kernels(self) -> int:
        try:
            return os.open(KERNELS, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_DIRECTORY, dir_fd=self._directory)
        except OSError as error:
            raise self._refusal(error, KERNELS, "a directory") from None

    def _file(self, directory: int, name: str, shown: str) -> int:
        """A descriptor of a regular file."""
        try:
            return open_regular(name, flags=os.O_NOFOLLOW, dir_fd=directory)
        except NotRegular:
            raise UnsafePath(f"{self.path / shown} is not a regular file", "replace it with the file itself") from None
        except OSError as error:
            raise self._refusal(error, shown, "a file") from None

    def _read(self, directory: int, name: str, shown: str, limit: int, *, whole: bool = True) -> bytes:
        """The file's bytes; of a longer one the first `limit`, or nothing and FileTooLarge if `whole`."""
        with os.fdopen(self._file(directory, name, shown), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if whole and size > limit:
                raise FileTooLarge(
                    f"{self.path / shown} has {size:,} bytes; the limit is {limit:,}",
                    "check that it is the right file",
                )
            try:
                return file.read(min(size, limit))  # Python allocates as much as is asked for
            except OSError as error:
                raise self._refusal(error, shown, "a file") from None

    def _has_manifest(self) -> bool:
        """Whether the folder still has the file that is removed first when all of it is removed."""
        try:
            os.stat(MANIFEST, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _check_there(self) -> None:
        """Raises FolderReplaced if the path leads elsewhere now: then missing files may have been removed."""
        if not is_at(self.path, self._directory):
            raise FolderReplaced(f"{self.path} was moved, replaced or removed while it was read", "start again")

    def _refusal(self, error: OSError, shown: str, wanted: str) -> ArtifactError:
        """The error for a path that does not open, by what is there and not only by errno."""
        path = self.path / shown
        if self._directory < 0:
            return FolderUnreadable(f"the folder {self.path} was closed", "open it again")
        check_limit(error, str(path))
        if isinstance(error, FileNotFoundError):
            self._check_there()
            return FileMissing(f"{path} does not exist", "an artifact folder is written by `kern build`")
        if path.is_symlink():
            return UnsafePath(f"{path} is a link", "links are not followed: put the file itself there")
        if isinstance(error, NotADirectoryError):
            return UnsafePath(f"{path} is not {wanted}", "an artifact folder is written by `kern build`")
        return FileUnreadable(f"{path} cannot be read: {error.strerror}", "check its permissions")


def open_folder(path: str | Path) -> ArtifactFolder:
    """Open the artifact folder at `path`, which may be a link; links inside the folder are refused.

    The opened folder is read to the end, also if another build replaces it meanwhile.
    Raises FolderUnreadable if it is not a readable directory, FileMissing if it has no manifest.
    """
    path = Path(path)
    try:
        directory = open_shared(path)
    except (OSError, ValueError) as error:
        check_limit(error, str(path))
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise FolderUnreadable(
            f"{path} cannot be opened as a folder: {reason}",
            "give a folder that holds a manifest.json, as `kern build` writes it",
        ) from None
    folder = ArtifactFolder(path, directory)
    try:
        os.stat(MANIFEST, dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        folder.close()
        raise FileMissing(
            f"{path} has no {MANIFEST}: {error.strerror}", "give a folder as `kern build` writes it"
        ) from None
    return folder


def _check_name(name: str, shown: str) -> None:
    """Refuse a name that is more than one plain component of a path."""
    if name in ("", ".", "..") or "/" in name or "\0" in name or not name.isprintable():
        raise UnsafePath(
            f"{shown!r} is not the name of a file in the folder",
            "a name is one component: no slash, no '..', no control character",
        )
    if len(os.fsencode(name)) > 255:
        raise UnsafePath(f"the name {name[:40]!r}… is longer than 255 bytes", "choose a shorter name")
