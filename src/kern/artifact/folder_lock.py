"""The lock between readers of a folder and a build that replaced it: it is removed when no reader is left.

Readers never wait. They lock the folder that they opened, and check that its path still leads to it: a build that
replaces it afterwards finds the lock.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

_PATIENCE_S: Final = 60
"""How long to wait for readers: loading takes seconds. A slower one gets an error that says what happened."""
_POLL_S: Final = 0.02


def open_shared(path: Path) -> int:
    """Open the folder at `path`, and hold a shared lock on it until it is closed. Raises OSError."""
    while True:
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _try_lock(directory, fcntl.LOCK_SH)
            if is_at(path, directory):
                return directory
        except BaseException:
            os.close(directory)
            raise
        os.close(directory)


def locked_alone(path: Path) -> int:
    """Open a folder that was replaced, and lock it once its readers have finished. Raises OSError."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        until = time.monotonic() + _PATIENCE_S
        while not _try_lock(directory, fcntl.LOCK_EX) and time.monotonic() < until:
            time.sleep(_POLL_S)
    except BaseException:
        os.close(directory)
        raise
    return directory


def is_at(path: Path, directory: int) -> bool:
    """Whether `path` leads to the open folder."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(directory))
    except OSError:
        return False


def _try_lock(directory: int, kind: int) -> bool:
    """Whether the lock was taken, or the file system has no locks."""
    try:
        fcntl.flock(directory, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
