"""Opening files that others may have put there: only regular ones, and without waiting for a writer."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""O_NONBLOCK lets a fifo be opened, and refused, without a writer."""


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
