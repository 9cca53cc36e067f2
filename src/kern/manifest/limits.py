"""Limits on this process, and errors caused by them: open files, memory, file size, processes."""

from __future__ import annotations

import errno
import os
import resource
from dataclasses import dataclass
from typing import Final

from kern.manifest.errors import KernError, variant

LimitReached = variant(KernError, "limit-reached", "A limit on this process, such as memory, was reached.", exit_code=2)


@dataclass(frozen=True, slots=True)
class _Limit:
    """What is limited, the option of `ulimit`, and the errors and phrases that show that it was reached."""

    what: str
    number: int
    option: str
    unit: str
    errors: tuple[int, ...]
    phrases: tuple[str, ...]


_LIMITS: Final = (
    _Limit(
        "open files", resource.RLIMIT_NOFILE, "-n", "", (errno.EMFILE, errno.ENFILE),
        ("Too many open files", "out of file descriptors"),
    ),
    _Limit(
        "memory", resource.RLIMIT_AS, "-v", " bytes", (errno.ENOMEM,),
        ("Cannot allocate memory", "memory exhausted", "failed to map segment"),
    ),
    _Limit(
        "a file's size", resource.RLIMIT_FSIZE, "-f", " bytes", (errno.EFBIG,),
        ("File too large", "File size limit exceeded", "No usable temporary directory"),
    ),
    _Limit(
        "processes and threads", resource.RLIMIT_NPROC, "-u", "", (errno.EAGAIN,),
        ("Resource temporarily unavailable", "start new thread"),
    ),
)  # fmt: skip


def check_limit(error: OSError | ValueError, what: str) -> None:
    """Raises LimitReached, which names `what`, if a limit is the reason for the error."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        raise LimitReached(f"{what}: {os.strerror(error.errno)}", help_for(error) or "") from error


def help_for(error: BaseException) -> str | None:
    """What to do about the limit that caused an error, recognized by errno or by its text; None for other errors.

    The text counts only where the limit is set: otherwise the same words have another cause.
    """
    for limit in _LIMITS:
        allowed = resource.getrlimit(limit.number)[0]
        set_ = allowed != resource.RLIM_INFINITY
        if _numbers(error) & set(limit.errors) or (set_ and any(phrase in str(error) for phrase in limit.phrases)):
            if not set_:
                return f"the machine has no more {limit.what}: close other programs"
            return f"the limit on {limit.what} is {allowed:,}{limit.unit} (ulimit {limit.option}): raise it"
    return None


def _numbers(error: BaseException | None) -> set[int]:
    """The errno of an error and of those that caused it."""
    numbers: set[int] = set()
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            numbers.add(error.errno)
        if isinstance(error, MemoryError):
            numbers.add(errno.ENOMEM)
        error = error.__cause__ or error.__context__
    return numbers
