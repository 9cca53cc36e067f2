"""Hide the report that native code prints when it panics: its caller reports the reason in one line instead."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_STDERR: Final = 2
_REPORT: Final = re.compile(rb"\n?thread '[^\n]*panicked at .*", re.DOTALL)
"""What Rust prints to stderr: the location, the message and, with RUST_BACKTRACE, the stack."""


@contextmanager
def panics_unprinted() -> Iterator[None]:
    """Buffer stderr while native code runs, then print what it wrote, without the report of a panic.

    stderr is shared by the whole process, so this is done on the main thread only.
    """
    kept = _duplicate() if threading.current_thread() is threading.main_thread() else None
    if kept is None:
        yield
        return
    if sys.stderr is not None:
        sys.stderr.flush()
    written = os.memfd_create("stderr")
    try:
        os.dup2(written, _STDERR)
        try:
            yield
        finally:
            os.dup2(kept, _STDERR)
            _print(os.pread(written, os.fstat(written).st_size, 0))
    finally:
        os.close(written)
        os.close(kept)


def _duplicate() -> int | None:
    """A second descriptor of stderr, None if it is closed."""
    try:
        return os.dup(_STDERR)
    except OSError:
        return None


def _print(output: bytes) -> None:
    output = _REPORT.sub(b"", output)
    if output:
        os.write(_STDERR, output)
