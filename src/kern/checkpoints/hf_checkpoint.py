"""Checkpoints as Hugging Face folders: config.json and safetensors, in one file or in shards."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kern.checkpoints.checkpoint import CheckpointError, StoredTensor, TextSource
from kern.checkpoints.config import TransformerConfig
from kern.checkpoints.folder_files import mapped, read_file, read_json
from kern.checkpoints.hf_config import check_architecture, from_hugging_face, unknown_settings
from kern.checkpoints.hf_shards import Shards, read_shards, where_gguf_is
from kern.checkpoints.hf_text import text_of_folder, unknown_generation

_DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
}
_CONFIG: Final = "config.json"
_ADAPTER: Final = "adapter_config.json"
_TOKENIZER: Final = "tokenizer.json"


class HuggingFaceCheckpoint:
    """A llama or qwen3 model in a Hugging Face folder. Tensors are memory-mapped."""

    def __init__(self, folder: Path) -> None:
        """Read config.json. Raises CheckpointError."""
        self._folder = folder
        if os.path.lexists(folder / _ADAPTER):
            raise CheckpointError(f"{folder} has {_ADAPTER}: it is an adapter", "merge it into its model first")
        content = read_file(folder / _CONFIG)
        if content is None:
            raise CheckpointError(
                f"{folder} has no {_CONFIG}",
                where_gguf_is(folder) or "give a model's folder as downloaded from Hugging Face, or a GGUF file",
            )
        self._config = read_json(folder / _CONFIG, content)

    @cached_property
    def config(self) -> TransformerConfig:
        """The model's sizes."""
        config = from_hugging_face(self._config)
        check_architecture(self._config)
        return config

    @cached_property
    def text(self) -> TextSource:
        """Tokenizer, stop ids and chat template, if the folder has them."""
        return text_of_folder(self._folder, self._config)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The content of config.json."""
        return self._config

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """The unknown fields of config.json and generation_config.json. Raises CheckpointError."""
        return (*unknown_settings(self._config), *unknown_generation(self._folder))

    @property
    def notes(self) -> tuple[str, ...]:
        """How the weights were found, once they have been read, and whether there is a tokenizer."""
        found = self._shards.notes if "_shards" in vars(self) else ()
        if os.path.lexists(self._folder / _TOKENIZER):
            return found
        others = [name for name in ("tokenizer.model", "vocab.json") if os.path.lexists(self._folder / name)]
        only = f", only {others[0]}" if others else ""
        return (*found, f"{self._folder} has no {_TOKENIZER}{only}: prompts are token ids")

    @cached_property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """Every tensor of the weights files. Raises CheckpointError and ArtifactError."""
        return {
            name: StoredTensor(name, info.shape, info.stored_dtype, readable=info.dtype in _DTYPES)
            for name, (_, info) in self._shards.tensors.items()
        }

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name. Raises CheckpointError and ArtifactError."""
        return name in self.tensors

    def tensor(self, name: str) -> NDArray[Any]:
        """A tensor as stored, memory-mapped. Raises CheckpointError and ArtifactError."""
        if not self.has(name):
            raise CheckpointError(f"{self._folder} has no tensor {name}")
        path, info = self._shards.tensors[name]
        dtype = _DTYPES.get(info.dtype or "")
        if dtype is None:
            raise CheckpointError(
                f"{name} has the dtype {info.stored_dtype} in {path}", "bf16, f16 and f32 are supported"
            )
        return mapped(path, dtype, info.offset, info.shape)

    @cached_property
    def _shards(self) -> Shards:
        return read_shards(self._folder)
