"""What a command writes: files, their paths checked before its work, each appearing whole; and JSON."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from kern.files.regular_file import whole_file
from kern.manifest.errors import KernError, variant

Writing = Callable[[BinaryIO], object]
"""Writes one file's content."""


Unwritable = variant(KernError, "file-unwritable", "A file cannot be written to the path given.", exit_code=2)


def check_path(what: str, path: Path) -> None:
    """Raises Unwritable if `what` cannot be written to `path`. A file that exists there is not changed."""
    try:
        if path.exists() and not path.is_file():
            raise Unwritable(f"{what} cannot be written to {path}: it is not a file", "give a file")
        tempfile.TemporaryDirectory(prefix=".kern-", dir=path.parent).cleanup()
    except OSError as error:
        raise _unwritable(what, path, error) from error


def write_files(what: str, contents: Mapping[Path, Writing]) -> None:
    """Write every file under another name, and rename them once all are complete. Raises Unwritable."""
    with ExitStack() as stack:
        for path, content in contents.items():
            file = stack.enter_context(_whole(what, path))
            content(file)
            file.flush()  # an error of this file is raised before another is renamed


@contextmanager
def _whole(what: str, path: Path) -> Iterator[BinaryIO]:
    try:
        with whole_file(path) as file:
            yield file
    except OSError as error:
        raise _unwritable(what, path, error) from error


def _unwritable(what: str, path: Path, error: OSError) -> KernError:
    return Unwritable(
        f"{what} cannot be written to {path}: {error.strerror or error}", "give a file in a folder that you may write"
    )


def json_text(value: object, indent: int | None = None) -> str:
    """`value` as JSON in ASCII; NaN and the infinities, which JSON does not have, are null."""
    try:
        return json.dumps(value, allow_nan=False, indent=indent)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, indent=indent)


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
