"""Hugging Face folders, whole and sharded, give what the same tensors give otherwise."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models, processors

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.config import Family, preset
from kern.checkpoints.hf_checkpoint import HuggingFaceCheckpoint
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.models.text_files import text_settings
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
    build(BuildOptions(family, checkpoint=model), output)

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


def tokenizer_json(template: str = "$A") -> str:
    library = Library(models.BPE(vocab={"a": 0, "b": 1, "<s>": 2}, merges=[]))
    library.add_special_tokens(["<s>"])
    library.post_processor = processors.TemplateProcessing(single=template, special_tokens=[("<s>", 2)])
    return library.to_str()


def test_the_text_side_is_read_from_the_folders_files(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", random("llama"))
    (folder / "tokenizer.json").write_text(tokenizer_json("<s> $A"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 5]}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    text = HuggingFaceCheckpoint(folder).text

    assert (text.stop_ids, text.bos, text.chat_template) == ((3, 5), 2, "{{ messages }}")
    assert text.tokenizer_json == (folder / "tokenizer.json").read_bytes()


def test_a_template_file_goes_before_the_config(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", random("llama"))
    (folder / "tokenizer.json").write_text(tokenizer_json())
    templates = [{"name": "tools", "template": "T"}, {"name": "default", "template": "D"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))

    assert HuggingFaceCheckpoint(folder).text.chat_template == "D"
    assert HuggingFaceCheckpoint(folder).text.bos is None
    (folder / "chat_template.jinja").write_text("J")
    assert HuggingFaceCheckpoint(folder).text.chat_template == "J"


def test_text_json_holds_what_the_folder_says_of_texts(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", random("llama"))
    (folder / "tokenizer.json").write_text(tokenizer_json("<s> $A"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "chat_template": "T"}))
    checkpoint = HuggingFaceCheckpoint(folder)
    settings = text_settings(checkpoint.config, checkpoint.text)

    assert (settings.version, settings.stop_ids, settings.bos) == (3, (3,), 2)
    assert (settings.special_tokens, settings.chat_template) == ({"bos_token": "<s>"}, "T")


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

    with pytest.raises(CheckpointError, match="has the dtype I8"):
        HuggingFaceCheckpoint(folder).tensor("model.norm.weight")


def read_everything(folder: Path) -> None:
    checkpoint = HuggingFaceCheckpoint(folder)
    checkpoint.tensor("model.norm.weight")
    assert checkpoint.text is not None


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("config.json", "[1]", "not a JSON object"),
        ("config.json", "{", "not JSON"),
        ("tokenizer.json", "{}", "is not a tokenizer of"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "../b.safetensors"}}', "not a file in this folder"),
        ("model.safetensors.index.json", '{"weight_map": {"a": 3}}', "not a file in this folder"),
        ("model.safetensors.index.json", '{"weight_map": {"a": ".."}}', "not a file in this folder"),
        ("model.safetensors.index.json", '{"weight_map": {"a": ""}}', "not a file in this folder"),
        ("model.safetensors.index.json", r'{"weight_map": {"a": "b\u0000"}}', "not a file in this folder"),
        ("model.safetensors.index.json", '{"weight_map": [3]}', "weight_map"),
        ("model.safetensors.index.json", "[" * 100_000, "nests too deeply"),
        ("config.json", "[" * 100_000, "nests too deeply"),
        ("config.json", b"\xff", "not JSON"),
        ("generation_config.json", "[" * 100_000, "nests too deeply"),
        ("tokenizer_config.json", "[" * 100_000, "nests too deeply"),
        ("tokenizer_config.json", '{"chat_template": ["x"]}', "chat_template is"),
        ("tokenizer_config.json", '{"chat_template": [{"name": "default"}]}', "chat_template is"),
        ("tokenizer_config.json", '{"chat_template": [{"name": ["default"], "template": "T"}]}', "chat_template is"),
        ("tokenizer_config.json", '{"chat_template": 3}', "chat_template is 3"),
        ("chat_template.jinja", b"caf\xe9", "not UTF-8 at byte 3"),
        ("tokenizer.json", tokenizer_json("<s> <s> $A"), "puts 2 ids before every text"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: str | bytes, says: str) -> None:
    folder = save_model(tmp_path / "model", random("llama"))
    (folder / "tokenizer.json").write_text(tokenizer_json())
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(CheckpointError, match=says) as caught:
        read_everything(folder)

    assert name in caught.value.message


def test_a_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json"):
        HuggingFaceCheckpoint(tmp_path)


@pytest.mark.parametrize("stop", [["a"], True, [True], "2", 2.0, {"id": 2}, [[2]]])
def test_invalid_stop_ids_are_refused(tmp_path: Path, stop: object) -> None:
    folder = save_model(tmp_path / "model", random("llama"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stop}))

    with pytest.raises(CheckpointError, match="eos_token_id"):
        _ = HuggingFaceCheckpoint(folder).text


@pytest.mark.parametrize("name", ["tokenizer.json", "generation_config.json", "model.safetensors.index.json"])
def test_a_link_that_leads_nowhere_is_not_taken_for_absent(tmp_path: Path, name: str) -> None:
    folder = save_model(tmp_path / "model", random("llama"))
    (folder / name).symlink_to(tmp_path / "gone")

    with pytest.raises(CheckpointError, match="cannot read"):
        read_everything(folder)


SETTINGS = ("config.json", "tokenizer.json", "generation_config.json", "model.safetensors.index.json")


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("place", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_what_is_not_a_regular_file_is_refused_at_once(
    tmp_path: Path, name: str, place: Callable[[Path], None]
) -> None:
    folder = save_model(tmp_path / "model", random("llama"))
    (folder / name).unlink(missing_ok=True)
    place(folder / name)

    with pytest.raises(CheckpointError, match=rf"cannot read .*{name}: it is not a regular file"):
        read_everything(folder)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_file_far_too_long_is_not_read(tmp_path: Path, name: str) -> None:
    folder = save_model(tmp_path / "model", random("llama"))
    (folder / name).touch()
    os.truncate(folder / name, 2**40)

    with pytest.raises(CheckpointError, match=rf"{name} has 1,099,511,627,776 bytes; the limit is 67,108,864"):
        read_everything(folder)


def test_a_weights_file_that_disappears_is_an_error_of_the_checkpoint(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", random("llama"))
    checkpoint = HuggingFaceCheckpoint(folder)
    checkpoint.tensor("model.norm.weight")
    (folder / "model.safetensors").unlink()

    with pytest.raises(CheckpointError, match=r"cannot read .*model\.safetensors"):
        checkpoint.tensor("model.norm.weight")


def test_a_weights_file_that_is_truncated_is_an_error_of_the_checkpoint(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", random("llama"))
    checkpoint = HuggingFaceCheckpoint(folder)
    checkpoint.tensor("model.norm.weight")
    os.truncate(folder / "model.safetensors", 3000)

    with pytest.raises(CheckpointError, match=r"model\.safetensors was truncated while it was read"):
        checkpoint.tensor("model.norm.weight")
