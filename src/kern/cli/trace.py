"""The trace file that a profile is written to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from kern.cli.json_text import json_text
from kern.manifest.errors import KernError


class UnwritableTrace(KernError):
    """A trace cannot be written where it was asked for."""

    code: ClassVar[str] = "trace"
    exit_code: ClassVar[int] = 2


def check_place(path: Path) -> None:
    """Raises UnwritableTrace where no trace could be written to `path`; what is there stays as it is."""
    try:
        if path.exists() and not path.is_file():
            raise UnwritableTrace(f"the trace cannot be written to {path}: it is no file", "name a file")
        tempfile.TemporaryDirectory(prefix=".trace-", dir=path.parent).cleanup()
    except OSError as error:
        raise _unwritable(path, error) from error


def write_trace(path: Path, trace: Mapping[str, object]) -> None:
    """Write a trace as JSON, in one step. Raises UnwritableTrace."""
    try:
        with tempfile.TemporaryDirectory(prefix=".trace-", dir=path.parent) as work:
            (Path(work) / "trace").write_text(json_text(trace), encoding="utf-8")
            os.replace(Path(work) / "trace", path)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UnwritableTrace:
    return UnwritableTrace(
        f"the trace cannot be written to {path}: {error.strerror or error}", "name a file in a folder of yours"
    )
