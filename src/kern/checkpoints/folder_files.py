"""Reading the files of a checkpoint: text of bounded size, JSON objects, and memory-mapped tensors."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kern.artifact.folder import MAX_TEXT_BYTES
from kern.checkpoints.checkpoint import CheckpointError
from kern.files.regular_file import open_regular


def read_file(path: Path) -> bytes | None:
    """The bytes of a file, None if it does not exist. A dangling link is an error, not a missing file."""
    if not os.path.lexists(path):
        return None
    try:
        with open(open_regular(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_TEXT_BYTES:
                raise CheckpointError(
                    f"{path} has {size:,} bytes; the limit is {MAX_TEXT_BYTES:,}",
                    "is this the right file?",
                )
            return file.read()
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror}", "check that it is a file that you may read"
        ) from error


def read_json(path: Path, content: bytes) -> dict[str, Any]:
    """The JSON object in the content of the file at `path`. Raises CheckpointError."""
    try:
        found = json.loads(content)
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    except RecursionError:
        raise CheckpointError(f"{path} nests too deeply to be read") from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return found


def mapped(path: Path, dtype: Any, offset: int, shape: tuple[int, ...]) -> NDArray[Any]:
    """An array in a file whose index was read earlier. Raises CheckpointError if the file has changed since."""
    try:
        return np.memmap(path, dtype, "r", offset, shape)
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror}", "do not move or delete it while it is read"
        ) from error
    except ValueError as error:  # the mapping is longer than the file
        raise CheckpointError(f"{path} was truncated while it was read") from error
