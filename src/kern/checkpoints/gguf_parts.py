"""A GGUF model in one file or in parts, which are found and checked against each other."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.config import shown
from kern.checkpoints.gguf_file import GgufFile, read_gguf
from kern.manifest.counts import listed

_MAX_PARTS: Final = 99_999
"""The names have five digits."""
_PART: Final = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf\Z", re.DOTALL)


def read_parts(path: Path) -> GgufFile:
    """The metadata of the file at `path`, with the tensors of all parts, of which it is the first.

    Raises CheckpointError, naming missing parts.
    """
    first = read_gguf(path)
    count, number = (_count(first, key) for key in ("split.count", "split.no"))
    if count <= 1:
        return first
    paths = _paths(path, count, number)
    if number:
        raise CheckpointError(f"{path} is part {number + 1} of {count}", f"give the first: {paths[0]}")
    missing = [part.name for part in paths if not os.path.exists(part)]
    if missing:
        raise CheckpointError(
            f"{path} is part 1 of {count}, but its folder has no {listed(missing)}", "download all parts"
        )
    tensors = dict(first.tensors)
    for index, part in enumerate(paths[1:], start=1):
        other = read_gguf(part)
        _check_part(first, other, index)
        repeated = tensors.keys() & other.tensors.keys()
        if repeated:
            raise CheckpointError(f"{part} has the tensor {shown(min(repeated))}, which an earlier part has too")
        tensors |= other.tensors
    total = first.metadata.get("split.tensors.count", len(tensors))
    if total != len(tensors):
        raise CheckpointError(f"the parts of {path} have {len(tensors)} tensors; split.tensors.count is {shown(total)}")
    return GgufFile(path, first.metadata, tensors)


def _paths(path: Path, count: int, number: int) -> list[Path]:
    named = _PART.match(path.name)
    if named is None or (int(named[2]), int(named[3])) != (number + 1, count):
        wanted = f"NAME-{number + 1:05}-of-{count:05}.gguf"
        raise CheckpointError(
            f"{path} is part {number + 1} of {count} but is not named {wanted}, so the others cannot be found",
            "rename the parts",
        )
    return [path.with_name(f"{named[1]}-{index:05}-of-{count:05}.gguf") for index in range(1, count + 1)]


def _check_part(first: GgufFile, part: GgufFile, number: int) -> None:
    if (_count(part, "split.no"), _count(part, "split.count")) != (number, _count(first, "split.count")):
        raise CheckpointError(f"{part.path} is not part {number + 1} of {first.path}", "download all parts again")
    own = [key for key, value in part.metadata.items() if not _is_as_in(first, key, value)]
    if own:
        raise CheckpointError(
            f"{part.path} has {shown(own[0])}, which the first part does not have", "download all parts again"
        )


def _is_as_in(first: GgufFile, key: str, value: Any) -> bool:
    return key.startswith("split.") or (key in first.metadata and first.metadata[key] == value)


def _count(file: GgufFile, key: str) -> int:
    value = file.metadata.get(key, 0)
    if type(value) is not int or not 0 <= value <= _MAX_PARTS:
        raise CheckpointError(f"{key} in {file.path} is {shown(value)}, not a number of parts")
    return value
