"""Checkpoints in Hugging Face's folder form: config.json and safetensors, in one file or sharded."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kern.artifact.folder import MAX_TEXT_BYTES
from kern.artifact.types import TensorInfo
from kern.artifact.weights import open_weights
from kern.models.checkpoint import CheckpointError, TextSource
from kern.models.config import TransformerConfig, from_hugging_face, shown

_DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
}
_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_AGAIN: Final = "fetch the file again, as its publisher has it"


class HuggingFaceCheckpoint:
    """A llama or qwen3 model in a Hugging Face folder. Tensors are mapped, not read whole."""

    def __init__(self, folder: Path) -> None:
        """Read config.json and the index of every weights file. Raises CheckpointError and ArtifactError."""
        self._folder = folder
        content = _content(folder / "config.json")
        if content is None:
            raise CheckpointError(f"{folder} has no config.json", "give a folder as Hugging Face has it")
        self._config = _json(folder / "config.json", content)
        self._tensors: dict[str, tuple[Path, TensorInfo]] = {}

    @cached_property
    def config(self) -> TransformerConfig:
        """The model's sizes."""
        return from_hugging_face(self._config)

    @cached_property
    def text(self) -> TextSource:
        """Tokenizer, stop ids and chat template, as far as the folder has them."""
        tokenizer = self._folder / "tokenizer.json"
        content = _content(tokenizer)
        if content is None:
            return TextSource(stop_ids=self._stop_ids())
        return TextSource(content, self._stop_ids(), _bos(content, tokenizer), self._chat_template())

    @property
    def settings(self) -> Mapping[str, Any]:
        """config.json as it is."""
        return self._config

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name. Raises CheckpointError and ArtifactError."""
        if not self._tensors:
            self._tensors = self._index()
        return name in self._tensors

    def tensor(self, name: str) -> NDArray[Any]:
        """A tensor as it is stored, mapped from its file. Raises CheckpointError and ArtifactError."""
        if not self.has(name):
            raise CheckpointError(f"{self._folder} has no tensor {name}")
        path, info = self._tensors[name]
        dtype = _DTYPES.get(info.dtype or "")
        if dtype is None:
            raise CheckpointError(f"{name} is stored as {info.stored_dtype} in {path}", "bf16, f16 and f32 can be read")
        try:
            return np.memmap(path, dtype, "r", info.offset, info.shape)
        except OSError as error:
            raise CheckpointError(f"cannot read {path}: {error.strerror}", "leave it there while it is read") from error
        except ValueError as error:  # the mapping is longer than the file
            raise CheckpointError(f"{path} has been cut off since it was opened", _AGAIN) from error

    def _index(self) -> dict[str, tuple[Path, TensorInfo]]:
        tensors: dict[str, tuple[Path, TensorInfo]] = {}
        for path in self._weight_files():
            with open_weights(path) as file:
                tensors |= {name: (path, info) for name, info in file.tensors.items()}
        return tensors

    def _weight_files(self) -> list[Path]:
        index = self._folder / _INDEX
        content = _content(index)
        if content is None:
            return [self._folder / _SINGLE]
        homes = _json(index, content).get("weight_map")
        if not isinstance(homes, dict):
            raise CheckpointError(f"{index} has no weight_map from tensors to files", _AGAIN)
        astray = [home for home in homes.values() if not isinstance(home, str) or not _is_file_name(home)]
        if astray:
            raise CheckpointError(f"{index} names {shown(astray[0])}, which is no file of this folder", _AGAIN)
        return [self._folder / home for home in sorted(set(homes.values()))]

    def _settings(self, name: str) -> dict[str, Any]:
        """A file of settings; none where there is no such file."""
        content = _content(self._folder / name)
        return {} if content is None else _json(self._folder / name, content)

    def _stop_ids(self) -> tuple[int, ...]:
        """generation_config.json holds all of them, config.json often one only."""
        stop = (self._config | self._settings("generation_config.json")).get("eos_token_id")
        ids = stop if isinstance(stop, list) else [] if stop is None else [stop]
        if not all(isinstance(id, int) and not isinstance(id, bool) for id in ids):
            raise CheckpointError(f"eos_token_id in {self._folder} is {shown(stop)}, neither an id nor a list of ids")
        return tuple(ids)

    def _chat_template(self) -> str | None:
        path = self._folder / "chat_template.jinja"
        content = _content(path)
        if content is None:
            found = self._settings("tokenizer_config.json").get("chat_template")
            return _default_template(found, self._folder / "tokenizer_config.json")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{path} is not UTF-8 at byte {error.start}") from error


def _default_template(found: Any, path: Path) -> str | None:
    """The template itself, or the one called `default` of several."""
    if isinstance(found, list) and all(_is_named_template(entry) for entry in found):
        return next((entry["template"] for entry in found if entry["name"] == "default"), None)
    if found is not None and not isinstance(found, str):
        raise CheckpointError(f"{path}: chat_template is {shown(found)}, neither a text nor a list of named ones")
    return found


def _is_named_template(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str)


def _bos(tokenizer_json: bytes, path: Path) -> int | None:
    """The id that this tokenizer puts before every text: what stands before the ids of one that are its own."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(tokenizer_json)
    except ValueError as error:
        raise CheckpointError(f"{path} is no tokenizer of the tokenizers library: {error}") from error
    whole: list[int] = tokenizer.encode("a").ids
    own: list[int] = tokenizer.encode("a", add_special_tokens=False).ids
    before = next(start for start in range(len(whole) + 1) if whole[start : start + len(own)] == own)
    if before > 1:
        raise CheckpointError(f"{path} puts {before} ids before a text", "one at most is provided for")
    return whole[0] if before else None


def _is_file_name(name: str) -> bool:
    return Path(name).name == name and name not in ("", "..") and "\0" not in name


def _content(path: Path) -> bytes | None:
    """The bytes of a file, None where there is none; a link that leads nowhere is there, and cannot be read."""
    if not os.path.lexists(path):
        return None
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise CheckpointError(f"{path} is not a regular file", "put the file itself there")
            if status.st_size > MAX_TEXT_BYTES:
                raise CheckpointError(
                    f"{path} has {status.st_size:,} bytes, more than the {MAX_TEXT_BYTES:,} that are read",
                    "is this the right file?",
                )
            return file.read()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", "check that it is a file, and yours") from error


def _without_waiting(path: str, flags: int) -> int:
    """Open a fifo, too, without its writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _json(path: Path, content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}", _AGAIN) from error
    except RecursionError:
        raise CheckpointError(f"{path} nests too deeply to be read", _AGAIN) from None
    if not isinstance(found, dict):
        raise CheckpointError(f"{path} holds no JSON object", _AGAIN)
    return found
