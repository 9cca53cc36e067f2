"""Temporary folders: removed afterwards, or where a process was killed, when the next one makes such a folder.

The process that uses a folder holds a lock on it, which ends with the process. A folder that can be locked is unused.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_RANDOM = 8
"""Characters that tempfile adds to a prefix."""


@contextmanager
def working_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder in `parent`, or where temporary files go, that is removed on the way out with all that it holds.

    `prefix` must be used for nothing else, not even by an older version of this program: a folder with it that nobody
    has locked is removed. Raises OSError.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_abandoned(prefix, parent)
    name, lock = _made(prefix, parent)
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name)
        if lock is not None:
            os.close(lock)


def _made(prefix: str, parent: Path) -> tuple[str, int | None]:
    """A new folder and the lock on it, None where the file system has no locks: no folder there counts as abandoned."""
    while True:
        name = tempfile.mkdtemp(prefix=prefix, dir=parent)
        try:
            lock = _lock(name)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process removed it as abandoned before it was locked
        except OSError:
            return name, None
        if os.path.exists(name):
            return name, lock
        os.close(lock)


def _remove_abandoned(prefix: str, parent: Path) -> None:
    for name in os.listdir(parent):
        if name.startswith(prefix) and len(name) == len(prefix) + _RANDOM:
            path = os.path.join(parent, name)
            with suppress(OSError):
                if os.lstat(path).st_uid == os.geteuid():
                    lock = _lock(path)
                    try:
                        shutil.rmtree(path)
                    finally:
                        os.close(lock)


def _lock(path: str) -> int:
    """The lock on a folder, until it is closed. Raises BlockingIOError where a process uses it, OSError."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(directory)
        raise
    return directory
