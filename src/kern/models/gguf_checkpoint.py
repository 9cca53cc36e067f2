"""Checkpoints in GGUF: tensors dequantised, rows of q and k put back into Hugging Face's order."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from kern.manifest.errors import install_hint
from kern.models.checkpoint import CheckpointError, TextSource
from kern.models.config import TransformerConfig, from_gguf, shown
from kern.models.tokenizer import tokenizer_from_gguf

_NAMES: Final[Mapping[str, str]] = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_LAYER_NAMES: Final[Mapping[str, str]] = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_MAX_VALUES: Final = 2**22
"""Values that a header may hold: twice those of the largest vocabularies."""
_Kind = TypeVar("_Kind")
_LAYER: Final = re.compile(r"model\.layers\.(\d+)\.(.+)\.weight\Z")


def unpaired(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of a q or k projection in half-split order, from GGUF's pairwise order.

    GGUF stores elements i and i + D/2 of a head next to each other, for a rotation of neighbours
    (llama.cpp, convert_hf_to_gguf.py, `LlamaModel.permute`); this is the inverse. Shape [heads · D, inputs].
    """
    outputs, inputs = rows.shape
    pairs = rows.reshape(heads, outputs // heads // 2, 2, inputs)
    return pairs.swapaxes(1, 2).reshape(outputs, inputs)


class GgufCheckpoint:
    """A llama model in one GGUF file."""

    def __init__(self, path: Path) -> None:
        """Read the file's header. Raises CheckpointError and UnsupportedModel."""
        self._path = path
        self._tensors, self._metadata = _read(path)
        # Llama 3.1's rope scaling comes as a tensor of factors, not as metadata.
        if "rope_freqs.weight" in self._tensors:
            raise CheckpointError(f"{path} scales its rope by factors of its own", "only unscaled rope is built")

    @cached_property
    def config(self) -> TransformerConfig:
        """The model's sizes."""
        return from_gguf(self._metadata, tied_embeddings="output.weight" not in self._tensors)

    @cached_property
    def text(self) -> TextSource:
        """Tokenizer, stop ids and chat template from `tokenizer.*`."""
        stop, bos = self._value("tokenizer.ggml.eos_token_id", int), self._value("tokenizer.ggml.bos_token_id", int)
        return TextSource(
            tokenizer_json=tokenizer_from_gguf(self._metadata),
            stop_ids=() if stop is None else (stop,),
            bos=bos if self._value("tokenizer.ggml.add_bos_token", bool) else None,
            chat_template=self._value("tokenizer.chat_template", str),
        )

    def _value(self, key: str, kind: type[_Kind]) -> _Kind | None:
        """A value of the metadata, None where it has none."""
        value = self._metadata.get(key)
        if value is None or type(value) is kind:
            return value
        raise CheckpointError(f"{key} in {self._path} is {shown(value)}, not of type {kind.__name__}")

    def tensor(self, name: str) -> NDArray[Any]:
        """A tensor in f32. Raises CheckpointError where the file has none of that name."""
        from gguf.quants import dequantize

        stored = self._tensors.get(_gguf_name(name))
        if stored is None:
            raise CheckpointError(f"{self._path} has no tensor for {name}")
        try:
            values: NDArray[Any] = dequantize(stored.data, stored.tensor_type).astype(np.float32, copy=False)
        except (ValueError, NotImplementedError) as error:
            raise CheckpointError(f"{stored.name} in {self._path} cannot be dequantised: {error}") from error
        if name.endswith("q_proj.weight"):
            return self._unpaired(stored.name, values, self.config.heads)
        if name.endswith("k_proj.weight"):
            return self._unpaired(stored.name, values, self.config.kv_heads)
        return values

    def _unpaired(self, name: str, rows: NDArray[Any], heads: int) -> NDArray[Any]:
        if rows.ndim != 2 or rows.shape[0] % (2 * heads):
            raise CheckpointError(f"{name} in {self._path} has the shape {rows.shape}, not rows for {heads} heads")
        return unpaired(rows, heads)


def _gguf_name(name: str) -> str:
    layer = _LAYER.match(name)
    if layer is None:
        return _NAMES.get(name, name)
    return f"blk.{layer[1]}.{_LAYER_NAMES.get(layer[2], layer[2])}.weight"


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tensors and the metadata of a file, by name."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise CheckpointError(f"{path} is not a regular file", "give the GGUF file itself")
        reader = _reader()(path)
        return {tensor.name: tensor for tensor in reader.tensors}, {
            name: field.contents() for name, field in reader.fields.items()
        }
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is no whole GGUF file: {error}") from error


def gguf_library() -> Any:
    """The package gguf. Raises CheckpointError where it is not installed."""
    try:
        import gguf
    except ImportError:
        raise CheckpointError("reading GGUF needs the package gguf", install_hint("gguf")) from None
    return gguf


def _reader() -> Any:
    class BoundedReader(gguf_library().GGUFReader):  # type: ignore[misc]
        """The library's own takes the end of a file for values of no size, and reads as many as a header claims."""

        values = 0

        def _get(self, offset: int, dtype: Any, count: int = 1, *more: Any, **options: Any) -> NDArray[Any]:
            found: NDArray[Any] = super()._get(offset, dtype, count, *more, **options)
            self.values += 1
            if found.size != count:
                raise ValueError(f"it ends before the {count} values at byte {offset}")
            if self.values > _MAX_VALUES:
                raise ValueError(f"it has more than {_MAX_VALUES:,} values beside its tensors")
            return found

    return BoundedReader
