"""The user's cache of what kern fetches, compiles or measures once, and which of it may be trusted.

What another user may have written is not used: a file counts if it is a regular file of this user or of root that
nobody else may write, in such a folder. Files are opened first and checked then, so that they cannot be exchanged in
between.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Final

from kern.files.regular_file import NotRegular, open_regular
from kern.manifest.errors import KernError, variant

NAME_ANOTHER: Final = "name a folder that can be written, by its absolute path, in XDG_CACHE_HOME"
"""What to do about a cache that cannot be used."""

_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_ROOT: Final = 0


NoCacheFolder = variant(KernError, "no-cache-folder", "There is no folder for the cache.", exit_code=2)
UntrustedCache = variant(KernError, "untrusted-cache", "Another user can write to the cache.", exit_code=2)


class CacheIgnored(UserWarning):
    """Something in the cache is not used, and the work that it would have saved is done again."""


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/kern`, or `~/.cache/kern` where the variable holds no absolute path.

    As the XDG Base Directory Specification says, a relative path is ignored. Raises NoCacheFolder where there
    is no home folder either.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(named) if os.path.isabs(named) else Path.home() / ".cache") / "kern"
    except RuntimeError as error:
        raise NoCacheFolder("there is no home folder to keep a cache in", NAME_ANOTHER) from error


def make_cache(folder: Path) -> None:
    """Make the folder if it does not exist, for its owner only. Raises OSError, UntrustedCache."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    os.close(_folder(folder))


def open_trusted(path: Path) -> BufferedReader:
    """A file of the cache, open for reading. Raises OSError where it does not open, UntrustedCache."""
    folder = _folder(path.parent)
    try:
        return os.fdopen(_file(path, folder, 0), "rb")
    finally:
        os.close(folder)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file of the cache, which is made if it does not exist. Raises OSError, UntrustedCache."""
    folder = _folder(path.parent)
    try:
        descriptor = _file(path, folder, os.O_RDWR | os.O_CREAT)
    finally:
        os.close(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _folder(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check(path, os.fstat(descriptor), f"chmod go-w {path}, if what it holds is yours, or {NAME_ANOTHER}")
    except UntrustedCache:
        os.close(descriptor)
        raise
    return descriptor


def _file(path: Path, folder: int, flags: int) -> int:
    help = "remove it; it will be made again"
    try:
        descriptor = open_regular(path.name, flags=flags | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UntrustedCache(f"{path} is not used: it is a link", help) from None
        if isinstance(error, NotRegular) or error.errno in (errno.EISDIR, errno.ENXIO):
            raise UntrustedCache(f"{path} is not used: it is not a regular file", help) from None
        raise
    try:
        _check(path, os.fstat(descriptor), help)
    except UntrustedCache:
        os.close(descriptor)
        raise
    return descriptor


def _check(path: Path, status: os.stat_result, help: str) -> None:
    if status.st_uid not in (_ROOT, os.geteuid()):
        raise UntrustedCache(f"{path} is not used: it belongs to another user ({status.st_uid})", help)
    if status.st_mode & _WRITABLE_BY_OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise UntrustedCache(f"{path} is not used: others may write it (its mode is {mode:04o})", help)
