"""Regular files: opened without waiting for a writer, whoever put them there, and written as a whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kern.files.working_folder import working_folder

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""O_NONBLOCK lets a fifo be opened, and refused, without a writer."""
_PREFIX = ".kern-part-"


class NotRegular(OSError):
    """A directory, a fifo, a socket or a device."""

    def __init__(self) -> None:
        super().__init__(0, "it is not a regular file")


def open_regular(path: str | Path, *, flags: int = 0, dir_fd: int | None = None) -> int:
    """A descriptor to read the regular file at `path` by; `flags` are added. Raises NotRegular, OSError, ValueError.

    A file that `flags` create is for its owner only.
    """
    descriptor = os.open(path, _FLAGS | flags, 0o600, dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular
    return descriptor


@contextmanager
def whole_file(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """A new file next to `path`, open for writing, which is renamed to it if the body succeeds.

    `mode` are its permissions; None leaves those that the process gives to new files. Raises OSError.
    """
    with working_folder(_PREFIX, path.parent) as folder:
        part = folder / "part"
        with part.open("wb") as file:
            yield file
        if mode is not None:
            part.chmod(mode)
        os.replace(part, path)
