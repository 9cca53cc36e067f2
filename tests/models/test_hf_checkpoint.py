"""Hugging Face folders, whole and sharded, give what the same tensors give otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models, processors

from kern.models import build as building
from kern.models.checkpoint import CheckpointError
from kern.models.config import Family, preset
from kern.models.hf_checkpoint import HuggingFaceCheckpoint
from kern.models.random_checkpoint import RandomCheckpoint
from support.hf_folder import save_model, save_tensors

FAMILIES: list[Family] = ["llama", "qwen3"]


def random(family: Family) -> RandomCheckpoint:
    return RandomCheckpoint(preset(family, "tiny"), 7)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", [None, np.float32])
def test_a_folder_builds_what_its_tensors_build(
    tiny: Path, tmp_path: Path, compiled_once: None, shards: int, dtype: Any
) -> None:
    family: Family = "llama" if tiny.name == "llama" else "qwen3"
    model = save_model(tmp_path / "model", random(family), shards=shards, dtype=dtype)
    output = tmp_path / "output"
    building.build(family, output, checkpoint=model)

    assert (output / "weights.safetensors").read_bytes() == (tiny / "weights.safetensors").read_bytes()
    ours, theirs = (json.loads((folder / "manifest.json").read_text()) for folder in (output, tiny))
    assert ours.pop("meta") != theirs.pop("meta")
    assert ours == theirs


def test_half_precision_is_read_as_it_is_stored(tmp_path: Path) -> None:
    model = HuggingFaceCheckpoint(save_model(tmp_path / "model", random("llama"), dtype=np.float16))
    tensor = model.tensor("model.layers.1.mlp.up_proj.weight")

    assert tensor.dtype == np.float16
    expected = random("llama").tensor("model.layers.1.mlp.up_proj.weight")
    assert np.array_equal(tensor, expected.astype(np.float16))


def tokenizer_json(*, bos: bool) -> str:
    library = Library(models.BPE(vocab={"a": 0, "b": 1, "<s>": 2}, merges=[]))
    library.add_special_tokens(["<s>"])
    if bos:
        library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    return library.to_str()


def test_the_text_side_is_read_from_the_folders_files(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", random("llama"))
    (folder / "tokenizer.json").write_text(tokenizer_json(bos=True))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 5]}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    text = HuggingFaceCheckpoint(folder).text

    assert (text.stop_ids, text.bos, text.chat_template) == ((3, 5), 2, "{{ messages }}")
    assert text.tokenizer_json == (folder / "tokenizer.json").read_bytes()


def test_a_template_file_goes_before_the_config(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", random("llama"))
    (folder / "tokenizer.json").write_text(tokenizer_json(bos=False))
    templates = [{"name": "tools", "template": "T"}, {"name": "default", "template": "D"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))

    assert HuggingFaceCheckpoint(folder).text.chat_template == "D"
    assert HuggingFaceCheckpoint(folder).text.bos is None
    (folder / "chat_template.jinja").write_text("J")
    assert HuggingFaceCheckpoint(folder).text.chat_template == "J"


def test_a_folder_without_a_tokenizer_has_stop_ids_still(tmp_path: Path) -> None:
    text = HuggingFaceCheckpoint(save_model(tmp_path / "model", random("llama"))).text

    assert (text.tokenizer_json, text.stop_ids) == (None, (3,))


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", random("qwen3"))
    save_tensors(folder / "model.safetensors", {"model.norm.weight": np.ones(128, np.float32)})

    with pytest.raises(CheckpointError, match=r"no tensor lm_head\.weight"):
        HuggingFaceCheckpoint(folder).tensor("lm_head.weight")


def test_a_tensor_of_another_dtype_is_refused(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", random("qwen3"))
    save_tensors(folder / "model.safetensors", {"model.norm.weight": np.ones(128, np.int8)})

    with pytest.raises(CheckpointError, match="stored as I8"):
        HuggingFaceCheckpoint(folder).tensor("model.norm.weight")


def read_everything(folder: Path) -> None:
    checkpoint = HuggingFaceCheckpoint(folder)
    checkpoint.tensor("model.norm.weight")
    assert checkpoint.text is not None


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("config.json", "[1]", "no JSON object"),
        ("config.json", "{", "not JSON"),
        ("tokenizer.json", "{}", "no tokenizer"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "../b.safetensors"}}', "no file of this folder"),
        ("model.safetensors.index.json", '{"weight_map": {"a": 3}}', "no file of this folder"),
        ("model.safetensors.index.json", '{"weight_map": [3]}', "weight_map"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: str, says: str) -> None:
    folder = save_model(tmp_path / "model", random("llama"))
    (folder / name).write_text(content)

    with pytest.raises(CheckpointError, match=says) as caught:
        read_everything(folder)

    assert name in caught.value.message


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json"):
        HuggingFaceCheckpoint(tmp_path)
