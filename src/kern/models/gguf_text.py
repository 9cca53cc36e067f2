"""The text side of a GGUF file: tokenizer, stop ids, the model's beginning, chat template."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from kern.models.checkpoint import CheckpointError, TextSource
from kern.models.config import shown
from kern.models.gguf_tokenizer import tokenizer_from_gguf

_Kind = TypeVar("_Kind")


def text_of_gguf(metadata: Mapping[str, Any], path: Path) -> TextSource:
    """Tokenizer, stop ids and chat template from `tokenizer.*` of the file at `path`. Raises CheckpointError."""
    stop = _value(metadata, "tokenizer.ggml.eos_token_id", int, path)
    bos = _value(metadata, "tokenizer.ggml.bos_token_id", int, path)
    return TextSource(
        tokenizer_json=tokenizer_from_gguf(metadata),
        stop_ids=() if stop is None else (stop,),
        bos=bos if _value(metadata, "tokenizer.ggml.add_bos_token", bool, path) else None,
        chat_template=_value(metadata, "tokenizer.chat_template", str, path),
    )


def _value(metadata: Mapping[str, Any], key: str, kind: type[_Kind], path: Path) -> _Kind | None:
    """A value of the metadata, None where it has none."""
    value = metadata.get(key)
    if value is None or type(value) is kind:
        return value
    raise CheckpointError(f"{key} in {path} is {shown(value)}, not of type {kind.__name__}")
