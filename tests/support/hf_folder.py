"""Hugging Face folders of random tensors, whole or sharded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kern.checkpoints.config import parameter_shapes
from kern.checkpoints.random_checkpoint import RandomCheckpoint

NAMES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32", "int8": "I8"}


def save_tensors(path: Path, tensors: dict[str, NDArray[Any]]) -> None:
    """A safetensors file, laid out by hand: the library's numpy side knows no bf16."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        offsets = [end, end := end + tensor.nbytes]
        header[name] = {"dtype": NAMES[tensor.dtype.name], "shape": list(tensor.shape), "data_offsets": offsets}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())


def config_json(checkpoint: RandomCheckpoint) -> dict[str, Any]:
    """What the publisher of such a model would write."""
    c = checkpoint.config
    return {
        "model_type": c.family, "num_hidden_layers": c.layers, "hidden_size": c.hidden, "intermediate_size": c.ffn,
        "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim,
        "vocab_size": c.vocabulary, "max_position_embeddings": c.max_positions, "rope_theta": c.rope_theta,
        "rms_norm_eps": c.norm_eps, "tie_word_embeddings": c.tied_embeddings, "eos_token_id": 3,
    }  # fmt: skip


def save_model(folder: Path, checkpoint: RandomCheckpoint, *, shards: int = 1, dtype: Any = None) -> Path:
    """The checkpoint as a folder; tensors are dealt out to the shards in turn."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config_json(checkpoint)))
    tensors = {name: checkpoint.tensor(name) for name in parameter_shapes(checkpoint.config)}
    if dtype is not None:
        tensors = {name: tensor.astype(dtype) for name, tensor in tensors.items()}
    if shards == 1:
        save_tensors(folder / "model.safetensors", tensors)
        return folder
    homes = {name: f"model-{place % shards + 1:05}-of-{shards:05}.safetensors" for place, name in enumerate(tensors)}
    for home in set(homes.values()):
        save_tensors(folder / home, {name: tensors[name] for name in tensors if homes[name] == home})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": homes}))
    return folder
