"""Reading drafts: published ones are read, and everything wrong with one is a clear error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kern.artifact.errors import ArtifactError
from kern.building.build import build
from kern.building.options import BuildError, BuildOptions
from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.config import UnsupportedModel, preset
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.manifest.errors import KernError
from kern.models.speculation.config import DraftConfig, from_dspark, random_draft
from kern.models.speculation.draft import Draft, open_draft
from support.draft_reference import draft_config, draft_tensors, save_draft
from support.reference import SMOLLM2_CONFIG, Reference

TARGET = RandomCheckpoint(replace(preset("qwen3", "tiny"), layers=6), 7)
REFERENCE = Reference(TARGET.config, cache(TARGET.tensor))
SAFETENSORS = "model.safetensors"


def opened(folder: Path, changes: dict[str, Any], own: tuple[str, ...] = (), **tensors: Any) -> Draft:
    config = draft_config(REFERENCE, **changes)
    kept = {name: value for name, value in config.items() if value is not None}
    whole = draft_tensors(draft_config(REFERENCE), 3, own) | {f"{n}.weight": t for n, t in tensors.items()}
    save_draft(folder, kept, {name: tensor for name, tensor in whole.items() if tensor is not None})
    return open_draft(folder, TARGET, seed=0, taps_before=False)


def test_a_published_draft_is_read(tmp_path: Path) -> None:
    draft = opened(tmp_path / "draft", {}, **{"confidence_head.proj": np.zeros((1, 8), np.float32)})
    sizes = replace(TARGET.config, layers=2, tied_embeddings=False)

    assert draft.config == DraftConfig(sizes, block=7, taps=(0, 2, 4), mask=511, rank=48, target_layers=6)
    assert draft.shared == {"embedding", "lm_head", "cos_sin"}


def test_the_published_configs_are_read() -> None:
    reference = Reference(preset("qwen3", "qwen3-4b"), TARGET.tensor)
    changes = {"target_layer_ids": [1, 9, 17, 25, 33], "num_hidden_layers": 5, "mask_token_id": 151669}
    config = draft_config(reference, markov_rank=256, **changes)
    del config["rope_theta"]
    found = from_dspark(config | {"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}})

    assert replace(found, transformer=replace(found.transformer, max_positions=40960)) == random_draft(
        preset("qwen3", "qwen3-4b")
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_anchors": None}, "no num_anchors"),
        ({"block_size": None}, "block_size in the draft's config is None"),
        ({"block_size": 0}, "block_size .* is 0"),
        ({"block_size": 40}, "block_size .* is 40"),
        ({"block_size": True}, "block_size .* is True"),
        ({"mask_token_id": 512}, "mask_token_id .* is 512"),
        ({"mask_token_id": -1}, "mask_token_id .* is -1"),
        ({"markov_rank": 0}, "markov_rank .* is 0"),
        ({"markov_head_type": "gated"}, "^in the draft: markov_head_type is 'gated'"),
        ({"target_layer_ids": None}, "target_layer_ids .* is None"),
        ({"target_layer_ids": []}, r"target_layer_ids .* is \[\]"),
        ({"target_layer_ids": [1, "2"]}, "target_layer_ids"),
        ({"target_layer_ids": [3, 1]}, r"target_layer_ids .* is \[3, 1\]"),
        ({"target_layer_ids": [1, 1]}, r"target_layer_ids .* is \[1, 1\]"),
        ({"target_layer_ids": [1, 5]}, "taps layer 5, the target's last"),
        ({"target_layer_ids": [1, 6]}, "taps layer 6, the target has layers 0 to 5"),
        ({"target_layer_ids": [-1, 2]}, "taps layer -1"),
        ({"vocab_size": 600}, "draft's vocabulary is 600, the target's 512"),
        ({"hidden_size": 64}, "draft's hidden is 64, the target's 128"),
        ({"num_key_value_heads": 1}, "draft's kv_heads is 1, the target's 2"),
        ({"intermediate_size": 304}, "draft's ffn is 304, the target's 256"),
        ({"intermediate_size": 100}, "draft's ffn is 100, .* a multiple of 8"),
        ({"num_target_layers": 36}, "draft's target has 36 layers, this one 6"),
        ({"num_target_layers": "6"}, "num_target_layers .* is '6'"),
        ({"attention_bias": True}, "^in the draft: attention_bias"),
        ({"model_type": "gemma"}, "^in the draft: model_type"),
        ({"num_hidden_layers": 10**9}, "^in the draft: layers is 1000000000"),
        ({"rope_scaling": {"rope_type": "dynamic"}}, "^in the draft: unknown type of RoPE scaling 'dynamic'"),
    ],
)
def test_a_config_that_does_not_fit_the_target_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedModel, match=says):
        opened(tmp_path / "draft", changes)


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"fc": None}, r"no tensor fc\.weight"),
        ({"layers.1.self_attn.k_norm": None}, r"no tensor layers\.1\.self_attn\.k_norm\.weight"),
        ({"hidden_norm": None, "norm": None, "fc": None, "markov_head.markov_w1": None}, "and 1 more"),
        ({"fc": np.zeros((128, 256), np.float32)}, r"fc\.weight has the shape \(128, 256\); .* \(128, 384\)"),
        ({"markov_head.markov_w2": np.zeros((48, 512), np.float32)}, r"markov_w2\.weight has the shape"),
        ({"embed_tokens": np.zeros((600, 128), np.float32)}, r"embed_tokens\.weight has the shape"),
        ({"hidden_norm": np.zeros(128, np.int8)}, "hidden_norm.weight has the dtype I8"),
    ],
)
def test_tensors_that_the_config_does_not_have_are_refused(tmp_path: Path, tensors: dict[str, Any], says: str) -> None:
    with pytest.raises(CheckpointError, match=says):
        opened(tmp_path / "draft", {}, **tensors)


def _without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def _cut(folder: Path) -> None:
    (folder / SAFETENSORS).write_bytes((folder / SAFETENSORS).read_bytes()[:-9])


@pytest.mark.parametrize(
    ("damage", "kind", "says"),
    [
        (_without("config.json"), CheckpointError, "no config.json"),
        (lambda folder: (folder / "config.json").write_text("{"), CheckpointError, "is not JSON"),
        (_without(SAFETENSORS), CheckpointError, SAFETENSORS),
        (_cut, ArtifactError, SAFETENSORS),
    ],
)
def test_a_damaged_folder_is_refused(
    tmp_path: Path, damage: Callable[[Path], object], kind: type[KernError], says: str
) -> None:
    config = draft_config(REFERENCE)
    folder = save_draft(tmp_path / "draft", config, draft_tensors(config, 3))
    damage(folder)

    with pytest.raises(kind, match=says):
        open_draft(folder, TARGET, seed=0, taps_before=False)


def test_tables_equal_to_the_targets_are_shared(tmp_path: Path) -> None:
    equal = {"embed_tokens": TARGET.tensor("model.embed_tokens.weight").astype(np.float32)}
    other = {"lm_head": TARGET.tensor("model.embed_tokens.weight")}

    assert opened(tmp_path / "equal", {}, **equal).shared == {"embedding", "lm_head", "cos_sin"}
    assert opened(tmp_path / "other", {"rope_theta": 1e4}, **equal, **other).shared == {"embedding"}
    scaled = {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    assert opened(tmp_path / "scaled", scaled).shared == {"embedding", "lm_head"}


def test_its_own_table_for_both_ends_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="lm_head is its own embed_tokens"):
        opened(tmp_path / "draft", {"tie_word_embeddings": True}, ("embed_tokens",))


def test_fc_is_cut_by_taps(tmp_path: Path) -> None:
    draft = opened(tmp_path / "draft", {})
    group = draft.weight_group
    cut = [group.tensor(source) for i in range(3) for source in group.weights[f"fc.{i}"].sources]

    assert [tensor.shape for tensor in cut] == [(128, 128)] * 3
    assert np.array_equal(np.concatenate(cut, axis=1), draft_tensors(draft_config(REFERENCE), 3)["fc.weight"])


def test_random_drafts_have_the_published_shapes() -> None:
    published = random_draft(preset("qwen3", "qwen3-4b"))
    small, tiny = random_draft(SMOLLM2_CONFIG), random_draft(preset("llama", "tiny"))

    assert published.taps == random_draft(preset("qwen3", "qwen3-8b")).taps == (1, 9, 17, 25, 33)
    assert (published.transformer.layers, published.rank, published.mask) == (5, 256, 151669)
    assert (small.transformer.layers, small.taps, small.rank, small.mask) == (2, (1, 14, 27), 64, 49151)
    assert (tiny.transformer.layers, tiny.taps, tiny.block) == (2, (0,), 7)


def test_a_random_draft_does_not_copy_its_target() -> None:
    first, same, other = (open_draft("random", TARGET, seed=seed, taps_before=False).tensors for seed in (7, 7, 8))
    name = "layers.0.self_attn.q_proj.weight"

    assert np.array_equal(first.tensor(name), same.tensor(name))
    assert not np.array_equal(first.tensor(name), other.tensor(name))
    assert not np.array_equal(first.tensor(name), TARGET.tensor(f"model.{name}"))
    assert first.tensor(name).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"taps_before": True}, BuildError, "needs a draft"),
        ({"draft": "random", "capture": "x"}, BuildError, "own kernels only"),
        ({"draft": "random", "taps_before": True}, UnsupportedModel, "taps layer -1"),
        ({"draft": "/no/such/folder"}, CheckpointError, "no such folder: /no/such/folder"),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, options: dict[str, Any], kind: type[KernError], says: str) -> None:
    with pytest.raises(kind, match=says):
        build(BuildOptions("qwen3", random=True, config="tiny", target="host", **options), tmp_path / "out")

    assert not any(tmp_path.iterdir())
