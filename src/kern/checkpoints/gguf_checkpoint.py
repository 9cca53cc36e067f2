"""Checkpoints in GGUF: tensors are dequantised, and q and k of llama are reordered as Hugging Face has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kern.checkpoints.checkpoint import CheckpointError, StoredTensor, TextSource
from kern.checkpoints.config import TransformerConfig
from kern.checkpoints.folder_files import mapped
from kern.checkpoints.gguf_config import from_gguf, unknown_metadata
from kern.checkpoints.gguf_file import GgufTensor
from kern.checkpoints.gguf_parts import read_parts
from kern.checkpoints.gguf_text import text_of_gguf

_NAMES: Final[Mapping[str, str]] = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER_NAMES: Final[Mapping[str, str]] = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER: Final = re.compile(r"blk\.(\d+)\.(\w+)\.weight\Z", re.ASCII)
_EMBEDDING: Final = "model.embed_tokens.weight"
_ROPE_FACTORS: Final = "gguf:rope_freqs.weight"


def unpaired(rows: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of a q or k projection in half-split order, from GGUF's pairwise order.

    GGUF stores elements i and i + D/2 of a llama's head next to each other, for a rotation of neighbours
    (llama.cpp, convert_hf_to_gguf.py, `LlamaModel.permute`); this is the inverse. Shape [heads · D, inputs].
    """
    outputs, inputs = rows.shape
    pairs = rows.reshape(heads, outputs // heads // 2, 2, inputs)
    return pairs.swapaxes(1, 2).reshape(outputs, inputs)


class GgufCheckpoint:
    """A llama or qwen3 model in a GGUF file, or in several that it was split into."""

    def __init__(self, path: Path) -> None:
        """Read the files' headers. Raises CheckpointError and UnsupportedModel."""
        self._path = path
        file = read_parts(path)
        self._metadata = file.metadata
        self._tensors = {_hugging_face_name(name): tensor for name, tensor in file.tensors.items()}

    @cached_property
    def config(self) -> TransformerConfig:
        """The model's sizes."""
        embedding = self._tensors.get(_EMBEDDING)
        return from_gguf(
            self._metadata,
            tied_embeddings="lm_head.weight" not in self._tensors,
            rows=None if embedding is None else embedding.shape[0],
            divisors=self._rope_factors(),
        )

    @cached_property
    def text(self) -> TextSource:
        """Tokenizer, stop ids and chat template from `tokenizer.*`."""
        return text_of_gguf(self._metadata, self._path)

    @cached_property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """Every tensor except the factors of rotary frequencies, which are part of the config."""
        return {
            name: StoredTensor(each.name, each.shape, each.type, readable=_can_dequantise(each.type))
            for name, each in self._tensors.items()
            if name != _ROPE_FACTORS or not self._has_pairs
        }

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """The unknown keys of the metadata."""
        return unknown_metadata(self._metadata)

    @property
    def notes(self) -> tuple[str, ...]:
        """None."""
        return ()

    def tensor(self, name: str) -> NDArray[Any]:
        """A tensor in f32. Raises CheckpointError for an unknown name."""
        stored = self._tensors.get(name)
        if stored is None:
            raise CheckpointError(f"{self._path} has no tensor for {name}")
        values = _dequantised(stored)
        if self._has_pairs and name.endswith("self_attn.q_proj.weight"):
            return self._unpaired(stored.name, values, self.config.heads)
        if self._has_pairs and name.endswith("self_attn.k_proj.weight"):
            return self._unpaired(stored.name, values, self.config.kv_heads)
        return values

    @property
    def _has_pairs(self) -> bool:
        """Whether pairs of neighbours are rotated, with optional factors: in llama, not in qwen3."""
        return bool(self._metadata.get("general.architecture") == "llama")

    def _rope_factors(self) -> tuple[float, ...]:
        stored = self._tensors.get(_ROPE_FACTORS)
        if stored is None or not self._has_pairs:
            return ()
        factors = _dequantised(stored).reshape(-1)
        if not (np.isfinite(factors) & (factors > 0)).all():
            raise CheckpointError(f"{stored.name} in {self._path} has factors that are not positive")
        return tuple(factors.tolist())

    def _unpaired(self, name: str, rows: NDArray[Any], heads: int) -> NDArray[Any]:
        if rows.ndim != 2 or rows.shape[0] % (2 * heads):
            raise CheckpointError(f"{name} in {self._path} has the shape {rows.shape}, not rows for {heads} heads")
        return unpaired(rows, heads)


def _hugging_face_name(name: str) -> str:
    """The name in a Hugging Face folder, or one that no tensor has there."""
    layer = _LAYER.match(name)
    if layer is None or layer[2] not in _LAYER_NAMES:
        return _NAMES.get(name, f"gguf:{name}")
    return f"model.layers.{layer[1]}.{_LAYER_NAMES[layer[2]]}.weight"


def _dequantised(stored: GgufTensor) -> NDArray[Any]:
    """The values of a tensor in f32."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    content = mapped(stored.path, np.uint8, stored.offset, (*stored.shape[:-1], stored.row_bytes))
    try:
        values: NDArray[Any] = dequantize(content, GGMLQuantizationType[stored.type])
    except NotImplementedError:
        raise CheckpointError(
            f"{stored.name} in {stored.path} is {stored.type}, which the package gguf cannot dequantise"
        ) from None
    return values.astype(np.float32, copy=False).reshape(stored.shape)


@cache
def _can_dequantise(type_name: str) -> bool:
    """Whether the package gguf can dequantise a type."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    type = GGMLQuantizationType[type_name]
    try:
        dequantize(np.zeros((1, GGML_QUANT_SIZES[type][1]), np.uint8), type)
    except NotImplementedError:
        return False
    return True
