"""The weights of a Hugging Face folder: one file, or shards with an index."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kern.artifact.types import TensorInfo
from kern.artifact.weights import open_weights
from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.config import shown
from kern.checkpoints.folder_files import read_file, read_json
from kern.manifest.counts import listed

_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_SHARD: Final = re.compile(r"model-\d+-of-\d+\.safetensors\Z")


@dataclass(frozen=True, slots=True)
class Shards:
    """The tensors of a folder, each with its file, and notes on how they were found."""

    tensors: Mapping[str, tuple[Path, TensorInfo]]
    notes: tuple[str, ...]


def read_shards(folder: Path) -> Shards:
    """Read the header of every weights file. Raises CheckpointError and ArtifactError."""
    whole = folder / _SINGLE
    homes = _homes(folder / _INDEX)
    if homes is None:
        if not os.path.lexists(whole):
            _refuse_without(folder)
        return Shards(_tensors_of(whole), ())
    shards = sorted({*homes.values()})
    missing = [shard for shard in shards if not os.path.lexists(folder / shard)]
    if os.path.lexists(whole) and _SINGLE not in shards:
        if not missing:
            raise CheckpointError(f"{folder} has both {_SINGLE} and the shards of {_INDEX}", "remove one of them")
        return Shards(_tensors_of(whole), (f"{_SINGLE} is read; {_INDEX} names missing files",))
    if missing:
        raise CheckpointError(f"{folder} has no {listed(missing)}, which {_INDEX} names", "download all files")
    return Shards(_assigned(folder, shards, homes), ())


def _tensors_of(path: Path) -> dict[str, tuple[Path, TensorInfo]]:
    with open_weights(path) as file:
        return {name: (path, info) for name, info in file.tensors.items()}


def _assigned(folder: Path, shards: list[str], homes: Mapping[str, str]) -> dict[str, tuple[Path, TensorInfo]]:
    """The tensors of the shards, each in the shard that the index names."""
    tensors: dict[str, tuple[Path, TensorInfo]] = {}
    for shard in shards:
        for name, found in _tensors_of(folder / shard).items():
            if homes.get(name) != shard:
                where = f"assigns it to {homes[name]}" if name in homes else "does not name it"
                raise CheckpointError(
                    f"{folder / shard} has {shown(name)}, but {_INDEX} {where}", "download all files again"
                )
            tensors[name] = found
    absent = next((name for name in homes if name not in tensors), None)
    if absent is not None:
        raise CheckpointError(
            f"{folder / homes[absent]} has no {shown(absent)}, although {_INDEX} names it", "download all files again"
        )
    return tensors


def _homes(index: Path) -> dict[str, str] | None:
    """The file of each tensor, None without an index."""
    content = read_file(index)
    if content is None:
        return None
    homes = read_json(index, content).get("weight_map")
    if not isinstance(homes, dict) or not homes:
        raise CheckpointError(f"{index} has no weight_map from tensors to files")
    invalid = [home for home in homes.values() if not isinstance(home, str) or not _is_file_name(home)]
    if invalid:
        raise CheckpointError(f"{index} names {shown(invalid[0])}, which is not a file in this folder")
    return homes


def _is_file_name(name: str) -> bool:
    return Path(name).name == name and name not in ("", "..") and "\0" not in name


def _refuse_without(folder: Path) -> None:
    """Raises CheckpointError for a folder without readable weights, saying what it has instead."""
    names = _names(folder)
    shards = [name for name in names if _SHARD.match(name)]
    if shards:
        raise CheckpointError(f"{folder} has {shards[0]} but no {_INDEX}", "download the index too")
    other = next((name for name in names if name.endswith((".bin", ".pt", ".pth", ".h5", ".msgpack"))), None)
    if other is not None:
        raise CheckpointError(
            f"{folder} has no {_SINGLE}, only {other}",
            "only safetensors are supported: save the model again with transformers' save_pretrained",
        )
    raise CheckpointError(f"{folder} has no {_SINGLE}", where_gguf_is(folder) or "give all files of the checkpoint")


def where_gguf_is(folder: Path) -> str | None:
    """A hint at the GGUF files of a folder, None if it has no such file."""
    found = [name for name in _names(folder) if name.endswith(".gguf")]
    return f"give the GGUF file itself: {folder / found[0]}" if found else None


def _names(folder: Path) -> list[str]:
    """The files of a folder; empty if it cannot be listed."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
