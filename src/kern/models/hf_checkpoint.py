"""Checkpoints in Hugging Face's folder form: config.json and safetensors, in one file or sharded."""

from __future__ import annotations

import json
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
from kern.models.config import TransformerConfig, from_hugging_face

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
        self._config = _json(folder / "config.json")
        self._tensors: dict[str, tuple[Path, TensorInfo]] = {}

    @cached_property
    def config(self) -> TransformerConfig:
        """The model's sizes."""
        return from_hugging_face(self._config)

    @cached_property
    def text(self) -> TextSource:
        """Tokenizer, stop ids and chat template, as far as the folder has them."""
        tokenizer = self._folder / "tokenizer.json"
        if not tokenizer.is_file():
            return TextSource(stop_ids=self._stop_ids())
        content = tokenizer.read_bytes()
        return TextSource(content, self._stop_ids(), _bos(content, tokenizer), self._chat_template())

    def tensor(self, name: str) -> NDArray[Any]:
        """A tensor as it is stored, mapped from its file. Raises CheckpointError and ArtifactError."""
        if not self._tensors:
            self._tensors = self._index()
        if name not in self._tensors:
            raise CheckpointError(f"{self._folder} has no tensor {name}")
        path, info = self._tensors[name]
        dtype = _DTYPES.get(info.dtype or "")
        if dtype is None:
            raise CheckpointError(f"{name} is stored as {info.stored_dtype}", "bf16, f16 and f32 can be read")
        return np.memmap(path, dtype, "r", info.offset, info.shape)

    def _index(self) -> dict[str, tuple[Path, TensorInfo]]:
        tensors: dict[str, tuple[Path, TensorInfo]] = {}
        for path in self._weight_files():
            with open_weights(path) as file:
                tensors |= {name: (path, info) for name, info in file.tensors.items()}
        return tensors

    def _weight_files(self) -> list[Path]:
        index = self._folder / _INDEX
        if not index.is_file():
            return [self._folder / _SINGLE]
        homes = _json(index).get("weight_map")
        if not isinstance(homes, dict):
            raise CheckpointError(f"{index} has no weight_map from tensors to files")
        astray = [home for home in homes.values() if not isinstance(home, str) or Path(home).name != home]
        if astray:
            raise CheckpointError(f"{index} names {astray[0]!r}, which is no file of this folder")
        return [self._folder / home for home in sorted(set(homes.values()))]

    def _stop_ids(self) -> tuple[int, ...]:
        """generation_config.json holds all of them, config.json often one only."""
        generation = self._folder / "generation_config.json"
        settings = self._config | (_json(generation) if generation.is_file() else {})
        stop = settings.get("eos_token_id")
        return tuple(stop) if isinstance(stop, list) else (stop,) if isinstance(stop, int) else ()

    def _chat_template(self) -> str | None:
        template = self._folder / "chat_template.jinja"
        if template.is_file():
            return template.read_text(encoding="utf-8")
        settings = self._folder / "tokenizer_config.json"
        found = _json(settings).get("chat_template") if settings.is_file() else None
        if isinstance(found, list):
            found = next((entry["template"] for entry in found if entry.get("name") == "default"), None)
        return found if isinstance(found, str) else None


def _bos(tokenizer_json: bytes, path: Path) -> int | None:
    """The id that this tokenizer puts before every text, found by encoding an empty one."""
    from tokenizers import Tokenizer

    try:
        ids: list[int] = Tokenizer.from_buffer(tokenizer_json).encode("").ids
    except ValueError as error:
        raise CheckpointError(f"{path} is no tokenizer of the tokenizers library: {error}") from error
    return ids[0] if ids else None


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no JSON object")
    return content
