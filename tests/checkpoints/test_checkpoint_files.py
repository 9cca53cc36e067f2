"""Files of a Hugging Face folder: each form works, or gets one line that says what is missing; notes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.config import UnsupportedModel
from kern.checkpoints.hf_checkpoint import HuggingFaceCheckpoint
from kern.checkpoints.tensors import check_checkpoint
from kern.cli.app import app
from support.draft_reference import draft_config, draft_tensors
from support.hf_folder import save_model, save_tensors
from support.reference import Reference
from support.sharp import SharpCheckpoint

LLAMA = SharpCheckpoint("llama")
WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def saved(folder: Path, shards: int = 1) -> Path:
    return save_model(folder, LLAMA, shards=shards)  # type: ignore[arg-type]


def homes(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / INDEX).read_text())["weight_map"]
    return found


def index(folder: Path, homes: dict[str, str]) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": homes}))


def shard(number: int) -> str:
    return f"model-{number:05}-of-00003.safetensors"


def test_a_tensor_in_another_shard_than_the_index_says_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", 3)
    index(folder, homes(folder) | {"model.norm.weight": shard(1)})

    with pytest.raises(
        CheckpointError, match=rf"00003.safetensors has 'model.norm.weight', .* assigns it to {shard(1)}"
    ):
        check_checkpoint(HuggingFaceCheckpoint(folder))


def test_a_tensor_that_the_index_does_not_name_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", 3)
    index(folder, {name: home for name, home in homes(folder).items() if name != "model.norm.weight"})

    with pytest.raises(CheckpointError, match=r"has 'model.norm.weight', but .* does not name it"):
        check_checkpoint(HuggingFaceCheckpoint(folder))


def test_a_tensor_missing_from_every_shard_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", 3)
    index(folder, homes(folder) | {"more": shard(2)})

    with pytest.raises(CheckpointError, match=rf"{shard(2)} has no 'more', although"):
        check_checkpoint(HuggingFaceCheckpoint(folder))


def test_missing_shards_are_named(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", 3)
    (folder / shard(2)).unlink()
    (folder / shard(3)).unlink()

    with pytest.raises(CheckpointError, match=rf"has no {shard(2)}, {shard(3)}, which {INDEX} names"):
        check_checkpoint(HuggingFaceCheckpoint(folder))


def test_a_stale_index_next_to_a_complete_file_is_noted(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    index(folder, dict.fromkeys(LLAMA.all(), shard(1)))
    checkpoint = HuggingFaceCheckpoint(folder)

    check_checkpoint(checkpoint)
    assert checkpoint.notes[0] == f"{WHOLE} is read; {INDEX} names missing files"


def test_an_index_of_the_whole_file_is_obeyed(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    index(folder, dict.fromkeys(LLAMA.all(), WHOLE))
    check_checkpoint(HuggingFaceCheckpoint(folder))
    index(folder, {"model.norm.weight": WHOLE})

    with pytest.raises(CheckpointError, match="does not name it"):
        check_checkpoint(HuggingFaceCheckpoint(folder))


def test_a_complete_file_next_to_all_shards_is_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", 3)
    save_tensors(folder / WHOLE, LLAMA.all())

    with pytest.raises(CheckpointError, match=f"has both {WHOLE} and the shards of"):
        check_checkpoint(HuggingFaceCheckpoint(folder))


def _only(name: str) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        (folder / WHOLE).unlink()
        if name:
            (folder / name).touch()

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_only(""), f"has no {WHOLE}; give all files"),
        (_only("pytorch_model.bin"), f"has no {WHOLE}, only pytorch_model.bin; only safetensors are supported"),
        (_only("pytorch_model-00001-of-00002.bin"), "only pytorch_model-00001"),
        (_only("consolidated.00.pth"), "only consolidated.00.pth"),
        (_only("q4.gguf"), "give the GGUF file itself: .*q4.gguf"),
        (_only(shard(1)), f"has {shard(1)} but no {INDEX}; download the index"),
        (lambda folder: (folder / "adapter_config.json").touch(), "adapter_config.json: it is an adapter; merge it"),
        (lambda folder: (folder / "config.json").unlink(), "has no config.json; give a model's folder"),
        (lambda folder: (folder / "config.json").rename(folder / "m.gguf"), "no config.json; give the GGUF .*m.gguf"),
        (lambda folder: (folder / INDEX).write_text('{"weight_map": {}}'), "has no weight_map"),
    ],
)
def test_a_folder_without_readable_weights_says_what_to_give(
    tmp_path: Path, change: Callable[[Path], object], says: str
) -> None:
    change(saved(tmp_path / "model"))

    with pytest.raises(CheckpointError, match=says):
        check_checkpoint(HuggingFaceCheckpoint(tmp_path / "model"))


def test_a_folder_without_tokenizer_json_is_noted(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")

    assert HuggingFaceCheckpoint(folder).notes == (f"{folder} has no tokenizer.json: prompts are token ids",)
    (folder / "tokenizer.model").touch()
    assert HuggingFaceCheckpoint(folder).notes == (
        f"{folder} has no tokenizer.json, only tokenizer.model: prompts are token ids",
    )
    (folder / "tokenizer.json").touch()
    assert HuggingFaceCheckpoint(folder).notes == ()


def built(*arguments: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(app, ["build", "llama", "--target", "host", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stderr.splitlines()


def test_unknown_settings_are_one_warning_and_an_error_with_strict(tmp_path: Path, compiled_once: None) -> None:
    folder = saved(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"warp": 1} | {f"w{i}\n": i for i in range(30)}))
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.6, "weft": 1}))
    (folder / "tokenizer.model").touch()
    code, lines = built("--checkpoint", str(folder), "-o", str(tmp_path / "out"))

    assert (code, len(lines)) == (0, 3)
    assert lines[0].endswith("has no tokenizer.json, only tokenizer.model: prompts are token ids")
    assert lines[1].startswith("warning: unknown settings of the checkpoint: warp, 'w0")
    assert lines[1].endswith(" and 12 more; they are ignored")
    with pytest.raises(UnsupportedModel, match="unknown settings of the checkpoint: warp, "):
        built("--strict", "--checkpoint", str(folder), "-o", str(tmp_path / "strict"))
    assert not (tmp_path / "strict").exists()
    bare = build(BuildOptions("llama", checkpoint=folder, target="host", weights=False), tmp_path / "bare")
    assert [f"note: {bare.notes[0]}", f"warning: {bare.warnings[0]}"] == lines[:2]


def test_a_checkpoint_that_is_known_builds_with_strict(tmp_path: Path, compiled_once: None) -> None:
    code, lines = built("--strict", "--checkpoint", str(saved(tmp_path / "model")), "-o", str(tmp_path / "out"))

    assert (code, [line[:5] for line in lines[:-1]]) == (0, ["note:"])


def test_unknown_settings_of_a_draft_are_a_warning(tmp_path: Path, compiled_once: None) -> None:
    target = SharpCheckpoint("qwen3")
    model = save_model(tmp_path / "model", target)  # type: ignore[arg-type]
    config = draft_config(Reference(target.config, target.tensor), target_layer_ids=[0], warp=1, num_target_layers=2)
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config))
    save_tensors(tmp_path / "draft" / WHOLE, {n: t.astype(np.float32) for n, t in draft_tensors(config, 3).items()})
    options: dict[str, Any] = {"checkpoint": model, "draft": tmp_path / "draft", "target": "host", "weights": False}

    warnings = build(BuildOptions("qwen3", **options), tmp_path / "out").warnings
    assert warnings == ("unknown settings of the draft: warp; they are ignored",)
    with pytest.raises(UnsupportedModel, match="unknown settings of the draft: warp"):
        build(BuildOptions("qwen3", strict=True, **options), tmp_path / "strict")
