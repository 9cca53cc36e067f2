"""What the command line says where memory ran out: that it did, and the limit that this process has."""

from __future__ import annotations

import errno
import resource
from typing import Final

_MAPPING: Final = "failed to map segment"
"""What the dynamic loader says of a library that it has no room for: Python makes an ImportError of it."""


def ran_out(error: BaseException) -> bool:
    """Whether `error` is one of the forms that a lack of memory takes."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (isinstance(error, ImportError) and _MAPPING in str(error))


def reason() -> tuple[str, str]:
    """What happened, and what to do about it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return "memory ran out", "free memory, or use a machine with more"
    return (
        f"memory ran out: this process may use {limit:,} bytes of address space",
        "raise the limit (`ulimit -v` shows it in KiB)",
    )
