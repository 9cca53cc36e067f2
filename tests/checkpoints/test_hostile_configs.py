"""Configs of random values are read or refused in a line, and what is read gives a finite rope table."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from kern.checkpoints.config import TransformerConfig, UnsupportedModel
from kern.checkpoints.gguf_config import from_gguf, unknown_metadata
from kern.checkpoints.gguf_fields import ARCHITECTURE_FIELDS
from kern.checkpoints.hf_config import check_architecture, from_hugging_face, unknown_settings
from kern.checkpoints.hf_fields import HF_FIELDS, ROPE_FIELDS
from kern.models.weights import rope_table
from support.gguf_files import gguf_metadata
from support.sharp import SharpCheckpoint

CONFIG: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 128,
}  # fmt: skip
ROPE = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
VALUES: list[Any] = [
    None, 0, 1, -1, 2, 3, 7, 64, 128, 2**31, 2**40, 2**64, 10**400, 0.0, 1.0, 0.5, -1.5, 1e-300, 1e29, 1e300,
    float("nan"), float("inf"), True, False, "", "x", "yarn", "linear", "llama3", "default", "none", [], [1],
    ["full_attention"] * 2, {}, {"a": 1}, {"rope_type": "yarn", "factor": 2.0}, [[]], [None],
]  # fmt: skip


def check(config: TransformerConfig) -> None:
    if config.max_positions <= 256 and config.head_dim <= 256:
        assert np.isfinite(rope_table(config)).all()


def test_random_configs_of_hugging_face_are_read_or_refused() -> None:
    chance, read = random.Random(1), 0
    fields = [name for name, field in HF_FIELDS.items() if field.verdict == "obeyed"]
    for _ in range(2000):
        config = CONFIG | {chance.choice(fields): chance.choice(VALUES) for _ in range(chance.randint(0, 2))}
        rope = ROPE | {"rope_type": chance.choice(["yarn", "llama3", "linear", "default"])}
        rope |= {chance.choice(list(ROPE_FIELDS)): chance.choice(VALUES) for _ in range(chance.randint(0, 3))}
        config[chance.choice(["rope_scaling", "rope_parameters", "rope"])] = rope
        try:
            found = from_hugging_face(config)
            check_architecture(config)
            unknown_settings(config)
        except UnsupportedModel as error:
            assert len(str(error)) < 600  # noqa: PT017
        else:
            check(found)
            read += 1

    assert 200 < read < 1800


def test_random_metadata_of_gguf_is_read_or_refused() -> None:
    chance, read = random.Random(2), 0
    metadata = gguf_metadata(SharpCheckpoint("llama").config)
    keys = [f"llama.{name}" for name, field in ARCHITECTURE_FIELDS.items() if field.verdict == "obeyed"]
    keys += ["tokenizer.ggml.tokens", "general.architecture"]
    for _ in range(2000):
        scaled = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0} if chance.random() < 0.5 else {}
        edits = {chance.choice(keys): chance.choice(VALUES) for _ in range(chance.randint(0, 3))}
        try:
            found = from_gguf(metadata | scaled | edits, tied_embeddings=True, rows=chance.choice([None, 512]))
            unknown_metadata(metadata | edits)
        except UnsupportedModel as error:
            assert len(str(error)) < 600  # noqa: PT017
        else:
            check(found)
            read += 1

    assert 200 < read < 1800
