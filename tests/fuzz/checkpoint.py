"""Fuzz target: the JSON files of a Hugging Face folder. What is accepted names a model whose every size is positive."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from fuzz.byte_changes import change_bytes
from fuzz.json_changes import change_json, json_text
from fuzz.target import ACCEPTED, Target, require
from fuzz.tokenizer_parts import changed_tokenizer, whole
from kern.checkpoints.config import parameter_shapes, preset
from kern.checkpoints.hf_checkpoint import HuggingFaceCheckpoint
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.models.text_files import text_settings
from support.hf_folder import save_model

PART = b"\n---- "
END = b" ----\n"
"""A file's name stands between these, its content behind them."""
WEIGHTS = "model.safetensors"
FRAGMENTS: tuple[Any, ...] = (
    *({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 32}},
      {"rope_scaling": {"type": "linear", "factor": 2.0}}, {"rope_scaling": {"rope_type": "yarn", "factor": 0}}),
    *({"attention_bias": True}, {"hidden_act": "gelu"}, {"head_dim": 0}, {"tie_word_embeddings": None}, {"unheard": 1}),
    *({"rope_parameters": {"rope_theta": -1.0}}, {"sliding_window": 4}, {"quantization_config": {}}, {"dtype": "int8"}),
    *({"eos_token_id": [1, 2]}, {"eos_token_id": "2"}, {"eos_token_id": -1}, {"eos_token": {"content": "</s>"}}),
    *({"chat_template": [{"name": "default", "template": "{{ 1 }}"}]}, {"chat_template": "\ud800"}, {"bos_token": 1}),
    *({"weight_map": {"model.norm.weight": "../x"}}, {"weight_map": {"a": WEIGHTS}}, {"weight_map": {}}),
)  # fmt: skip


@cache
def _models() -> dict[str, dict[str, bytes]]:
    """The files of the tiny models, weights too."""
    models = {}
    with tempfile.TemporaryDirectory() as folder:
        for family in ("llama", "qwen3"):
            path = save_model(Path(folder) / family, RandomCheckpoint(preset(family, "tiny"), 1))
            models[family] = {file.name: file.read_bytes() for file in path.iterdir()}
    return models


@cache
def seeds() -> tuple[bytes, ...]:
    """A config alone; with a tokenizer and its settings; and with an index of the weights."""
    llama, qwen3 = (_models()[family]["config.json"] for family in ("llama", "qwen3"))
    settings = {"chat_template": "{{ messages[0].content }}", "eos_token": "<end>", "tokenizer_class": "x"}
    generation = {"eos_token_id": [256], "bos_token_id": 258, "max_length": 20}
    names = parameter_shapes(preset("llama", "tiny"))
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(names, WEIGHTS)}
    return (
        _joined({"config.json": llama}),
        _joined({
            "config.json": qwen3, "generation_config.json": json.dumps(generation).encode(),
            "tokenizer_config.json": json.dumps(settings).encode(), "tokenizer.json": whole()[0].encode(),
        }),
        _joined({"config.json": llama, "model.safetensors.index.json": json.dumps(index).encode()}),
    )  # fmt: skip


def _joined(files: dict[str, bytes]) -> bytes:
    return b"".join(PART + name.encode() + END + content for name, content in files.items())


def _split(data: bytes) -> dict[str, bytes]:
    parts = (part.partition(END) for part in data.split(PART)[1:])
    return {name.decode("ascii", "replace"): content for name, _, content in parts}


def change(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change the JSON of a file, take one out, put in another folder's; or change bytes anywhere."""
    files = _split(data)
    kind = random.randrange(20)
    if not files or kind < 2:
        return change_bytes(random, data, others)
    name = random.choice(tuple(files))
    if kind < 3:
        return _joined({other: content for other, content in files.items() if other != name})
    if kind < 5:
        more = _split(random.choice(others))
        return _joined(files | dict([random.choice(tuple(more.items()))])) if more else data
    try:
        document = json.loads(files[name])
        if name == "tokenizer.json":
            changed = json_text(random, changed_tokenizer(random, document))
        else:
            changed = json_text(random, change_json(random, document, (), FRAGMENTS))
    except (ValueError, RecursionError):
        changed = change_bytes(random, files[name], [data])
    return _joined(files | {name: changed})


def run(data: bytes, folder: Path) -> str:
    """Read the config, the text side and every tensor of a folder."""
    files = _split(data)
    family = "qwen3" if b'"qwen3"' in files.get("config.json", b"") else "llama"
    (folder / WEIGHTS).write_bytes(_models()[family][WEIGHTS])
    for name, content in files.items():
        if name.endswith(".json") and "/" not in name and "\0" not in name and len(name.encode()) < 200:
            (folder / name).write_bytes(content)
    checkpoint = HuggingFaceCheckpoint(folder)
    config = checkpoint.config
    sizes = (
        config.layers,
        config.hidden,
        config.ffn,
        config.heads,
        config.kv_heads,
        config.head_dim,
        config.vocabulary,
    )
    require(min(sizes) > 0 and config.max_positions > 0, f"a size below 1: {config}")
    require(config.rope_theta > 0 and config.norm_eps >= 0, f"a number out of range: {config}")
    settings = text_settings(config, checkpoint.text)
    require(all(0 <= id < config.vocabulary for id in settings.stop_ids), f"stop ids: {settings.stop_ids}")
    for name in list(parameter_shapes(config))[:50]:
        checkpoint.tensor(name)
    return ACCEPTED


TARGET = Target("checkpoint", seeds, change, run, short=80)
