"""A model whose answers are known beforehand: after id i comes i + 1. One id may be broken, another banned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

import ml_dtypes
import numpy as np
from tokenizers import Tokenizer, decoders, models

from kern.artifact.weights import open_weights
from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.config import parameter_shapes, preset
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from support.hf_folder import config_json, save_tensors

CONFIG: Final = replace(preset("llama", "tiny"), tied_embeddings=False)


def write_chain(
    folder: Path,
    *,
    broken: int | None = None,
    banned: int | None = None,
    gain: float = 1,
    target: str = "host",
    draft: str | None = None,
    sequences: int = 1,
) -> Path:
    """The model's folder: its layers add nothing, id i is dimension i, whose logit for i + 1 is `gain` · √hidden.

    The embedding of `broken` has a NaN. The logit of `banned` is -inf wherever it is asked for.
    Its tokenizer has a token per character: "4" is id 19.
    """
    tensors = {name: np.zeros(shape, np.float32) for name, shape in parameter_shapes(CONFIG).items()}
    for name, tensor in tensors.items():
        if "norm" in name:
            tensor[:] = 1
    embedding, head = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    ids = np.arange(CONFIG.hidden)
    embedding[ids, ids] = 1
    head[ids[1:], ids[:-1]] = gain
    if banned is not None:
        head[banned, ids] = -3e38
    checkpoint = folder.with_name(folder.name + "-checkpoint")
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text(json.dumps(config_json(RandomCheckpoint(CONFIG, 0))))
    save_tensors(checkpoint / "model.safetensors", {name: t.astype(ml_dtypes.bfloat16) for name, t in tensors.items()})
    library = Tokenizer(models.BPE(vocab={chr(33 + id): int(id) for id in ids}, merges=[]))
    library.decoder = decoders.Fuse()
    library.save(str(checkpoint / "tokenizer.json"))
    build(BuildOptions("llama", checkpoint=checkpoint, target=target, draft=draft, sequences=sequences), folder)
    if broken is not None:
        spoil(folder / "weights.safetensors", "embedding", broken)
    return folder


def spoil(weights: Path, name: str, row: int) -> None:
    """Put a NaN into the first element of a row of a bf16 weight: no checkpoint with one is built."""
    with open_weights(weights) as file:
        tensor = file.tensors[name]
    with weights.open("r+b") as written:
        written.seek(tensor.offset + row * tensor.shape[1] * 2)
        written.write(np.array(np.nan, ml_dtypes.bfloat16).tobytes())
