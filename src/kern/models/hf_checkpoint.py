"""Checkpoints in Hugging Face's folder form: config.json and safetensors, in one file or sharded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kern.artifact.types import TensorInfo
from kern.artifact.weights import open_weights
from kern.models.checkpoint import CheckpointError, TextSource
from kern.models.config import TransformerConfig, from_hugging_face, shown
from kern.models.folder_files import AGAIN, read_file, read_json
from kern.models.hf_text import text_of_folder

_DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
}
_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"


class HuggingFaceCheckpoint:
    """A llama or qwen3 model in a Hugging Face folder. Tensors are mapped, not read whole."""

    def __init__(self, folder: Path) -> None:
        """Read config.json and the index of every weights file. Raises CheckpointError and ArtifactError."""
        self._folder = folder
        content = read_file(folder / "config.json")
        if content is None:
            raise CheckpointError(f"{folder} has no config.json", "give a folder as Hugging Face has it")
        self._config = read_json(folder / "config.json", content)
        self._tensors: dict[str, tuple[Path, TensorInfo]] = {}

    @cached_property
    def config(self) -> TransformerConfig:
        """The model's sizes."""
        return from_hugging_face(self._config)

    @cached_property
    def text(self) -> TextSource:
        """Tokenizer, stop ids and chat template, as far as the folder has them."""
        return text_of_folder(self._folder, self._config)

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
            raise CheckpointError(f"{path} has been cut off since it was opened", AGAIN) from error

    def _index(self) -> dict[str, tuple[Path, TensorInfo]]:
        tensors: dict[str, tuple[Path, TensorInfo]] = {}
        for path in self._weight_files():
            with open_weights(path) as file:
                tensors |= {name: (path, info) for name, info in file.tensors.items()}
        return tensors

    def _weight_files(self) -> list[Path]:
        index = self._folder / _INDEX
        content = read_file(index)
        if content is None:
            return [self._folder / _SINGLE]
        homes = read_json(index, content).get("weight_map")
        if not isinstance(homes, dict):
            raise CheckpointError(f"{index} has no weight_map from tensors to files", AGAIN)
        astray = [home for home in homes.values() if not isinstance(home, str) or not _is_file_name(home)]
        if astray:
            raise CheckpointError(f"{index} names {shown(astray[0])}, which is no file of this folder", AGAIN)
        return [self._folder / home for home in sorted(set(homes.values()))]


def _is_file_name(name: str) -> bool:
    return Path(name).name == name and name not in ("", "..") and "\0" not in name
