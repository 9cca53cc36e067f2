"""A trained draft as a folder in the published layout: config.json, model.safetensors and a model card."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file

from draft_training.draft import Draft, DraftConfig
from draft_training.objective import DECAY

MAX_BYTES: Final = 16_000_000
"""The most bytes that the weights of a draft may have, since they go into a repository."""


def stored_bytes(config: DraftConfig) -> int:
    """Size of the tensors in bf16."""
    return sum(2 * math.prod(shape) for shape in config.shapes().values())


def config_json(config: DraftConfig) -> dict[str, Any]:
    """The published keys, all at the top level.

    `num_anchors` marks the layout in which row k of a block predicts the token k + 1 positions after the anchor.
    """
    c = config.transformer
    return {
        "architectures": [f"{c.family.capitalize()}DSparkModel"], "model_type": c.family, "dtype": "bfloat16",
        "num_hidden_layers": c.layers, "hidden_size": c.hidden, "intermediate_size": c.ffn, "hidden_act": "silu",
        "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim,
        "vocab_size": c.vocabulary, "max_position_embeddings": c.max_positions, "rms_norm_eps": c.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": c.rope_theta},
        "attention_bias": False, "tie_word_embeddings": False,
        "num_target_layers": config.target_layers, "target_layer_ids": list(config.taps), "block_size": config.block,
        "mask_token_id": config.mask, "markov_rank": config.rank, "markov_head_type": "vanilla",
        "enable_confidence_head": False, "num_anchors": 64, "loss_decay_gamma": DECAY,
    }  # fmt: skip


def save_draft(folder: Path, draft: Draft, card: str) -> None:
    """Write the three files into a new folder, all or none. Raises OSError.

    The embedding and the output projection are left out: they are the target's, unchanged.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        save_weights(work / "model.safetensors", draft)
        (work / "model.safetensors").chmod(0o644)
        (work / "config.json").write_text(json.dumps(config_json(draft.config), indent=2) + "\n", encoding="utf-8")
        (work / "README.md").write_text(card, encoding="utf-8")
        work.chmod(0o755)
        os.rename(work, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def save_weights(path: Path, draft: Draft) -> None:
    """Write the tensors in bf16."""
    tensors = {name: tensor.detach().to("cpu", torch.bfloat16) for name, tensor in draft.tensors.items()}
    save_file(tensors, path, metadata={"format": "pt"})


def rounded(draft: Draft) -> Draft:
    """The draft as it is read back from its file: what is measured is what is stored."""
    with tempfile.TemporaryDirectory() as folder:
        save_weights(Path(folder) / "model.safetensors", draft)
        tensors = load_file(Path(folder) / "model.safetensors")
    device = draft.tensors["norm.weight"].device
    return Draft(draft.config, {name: tensors[name].to(device).float() for name in draft.config.shapes()})
