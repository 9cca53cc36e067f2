"""Every tensor of a checkpoint is used, irrelevant by name, or refused; so are values that bf16 cannot represent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.checkpoint import Checkpoint, CheckpointError
from kern.checkpoints.gguf_checkpoint import GgufCheckpoint
from kern.checkpoints.hf_checkpoint import HuggingFaceCheckpoint
from kern.checkpoints.tensors import check_checkpoint
from support.gguf_files import gguf_metadata, gguf_tensors, write_gguf
from support.hf_folder import config_json, save_tensors
from support.sharp import SharpCheckpoint

Tensors = dict[str, NDArray[Any]]
LLAMA, QWEN3 = SharpCheckpoint("llama"), SharpCheckpoint("qwen3")
HIDDEN, VOCABULARY = LLAMA.config.hidden, LLAMA.config.vocabulary


def folder(
    path: Path, tensors: Mapping[str, Any], model: SharpCheckpoint = QWEN3, **config: Any
) -> HuggingFaceCheckpoint:
    """The model in a folder, with other or more tensors; None leaves one out."""
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config_json(model) | config))  # type: ignore[arg-type]
    merged = model.all() | dict(tensors)
    save_tensors(path / "model.safetensors", {name: each for name, each in merged.items() if each is not None})
    return HuggingFaceCheckpoint(path)


def gguf(path: Path, tensors: Mapping[str, Any], model: SharpCheckpoint = LLAMA, **keys: Any) -> GgufCheckpoint:
    """The model in a GGUF file, with other or more tensors; None leaves one out."""
    merged = gguf_tensors(model.config, model.all()) | dict(tensors)
    kept = {name: each for name, each in merged.items() if each is not None}
    return GgufCheckpoint(write_gguf(path, gguf_metadata(model.config) | keys, kept))


def zeros(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


Q_BIAS = "model.layers.1.self_attn.q_proj.bias"


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({Q_BIAS: zeros(128)}, f"has 1 tensor that is not used: {Q_BIAS}; biases are not built"),
        ({"model.layers.0.mlp.experts.3.up_proj.weight": zeros(2, 2)}, "a mixture of experts is not built"),
        ({"model.layers.0.mlp.gate.weight": zeros(2, 2)}, r"is not used: model\.layers\.0\.mlp\.gate\.weight"),
        (
            {"model.layers.2.input_layernorm.weight": zeros(HIDDEN)},
            r"is not used: .*layers\.2\.input_layernorm",
        ),
        ({"model.layers.0.self_attn.q_proj.weight_scale": zeros(1)}, "before its quantisation"),
        ({"model.layers.0.self_attn.q_proj.lora_A.weight": zeros(2, 2)}, "merge the adapter"),
        ({"score.weight": zeros(2, HIDDEN)}, r"is not used: score\.weight"),
        ({"lm_head.bias": zeros(VOCABULARY)}, r"lm_head\.bias"),
        (
            {f"x{i}.weight": zeros(1) for i in range(5)},
            r"5 tensors that are not used: x0.*, x2\.weight and 2 more",
        ),
        ({"x" * 5000: zeros(1)}, "x…"),
        ({"lm_head.weight": None}, r"no tensor lm_head\.weight; tie_word_embeddings is false"),
        ({"model.norm.weight": None}, r"no tensor model\.norm\.weight"),
        ({"model.layers.1.self_attn.k_norm.weight": None}, r"no tensor model\.layers\.1\.self_attn\.k_norm\.weight"),
        ({"model.norm.weight": zeros(HIDDEN - 1)}, r"model\.norm\.weight has the shape \(127,\); .* \(128,\)"),
        ({"model.norm.weight": zeros(HIDDEN, 1)}, r"model\.norm\.weight has the shape \(128, 1\)"),
        ({"model.norm.weight": np.zeros(HIDDEN, np.int8)}, r"model\.norm\.weight has the dtype I8"),
    ],
)
def test_a_folder_with_other_tensors_than_the_models_is_refused(
    tmp_path: Path, tensors: dict[str, Any], says: str
) -> None:
    checkpoint = folder(tmp_path / "model", tensors)

    with pytest.raises(CheckpointError, match=says) as caught:
        check_checkpoint(checkpoint)
    assert len(str(caught.value)) < 600


def test_irrelevant_tensors_are_left_out(tmp_path: Path) -> None:
    names = ("model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq")

    check_checkpoint(folder(tmp_path / "model", {name: zeros(8) for name in names}))


def test_a_model_that_was_saved_without_its_head_is_refused(tmp_path: Path) -> None:
    bare = dict.fromkeys(QWEN3.all()) | {
        name.removeprefix("model."): each for name, each in QWEN3.all().items() if name != "lm_head.weight"
    }

    with pytest.raises(CheckpointError, match="saved without its head"):
        check_checkpoint(folder(tmp_path / "model", bare))


def test_a_head_with_tied_embeddings_must_equal_the_embedding(tmp_path: Path) -> None:
    embedding = QWEN3.tensor("model.embed_tokens.weight")
    tied: dict[str, Any] = {"tie_word_embeddings": True}
    # Equal in bf16, as which all weights are kept.
    nearly = embedding.astype(np.float32) * np.float32(1.0001)

    with pytest.raises(
        CheckpointError, match=r"lm_head\.weight differs from the embedding, but tie_word_embeddings is true"
    ):
        check_checkpoint(folder(tmp_path / "other", {}, **tied))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight has the shape"):
        check_checkpoint(folder(tmp_path / "short", {"lm_head.weight": zeros(VOCABULARY - 1, HIDDEN)}, **tied))
    check_checkpoint(folder(tmp_path / "equal", {"lm_head.weight": embedding.astype(np.float32)}, **tied))
    check_checkpoint(folder(tmp_path / "nearly", {"lm_head.weight": nearly}, **tied))
    check_checkpoint(folder(tmp_path / "none", {"lm_head.weight": None}, **tied))


def test_one_row_that_differs_makes_another_head(tmp_path: Path) -> None:
    head = QWEN3.tensor("model.embed_tokens.weight").astype(np.float32)
    head[-1, -1] += 1

    with pytest.raises(CheckpointError, match="differs from the embedding"):
        check_checkpoint(folder(tmp_path / "model", {"lm_head.weight": head}, tie_word_embeddings=True))


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_gguf_is_tied_where_it_has_no_head(tmp_path: Path, family: Any) -> None:
    model = SharpCheckpoint(family)
    tied = gguf(tmp_path / "tied.gguf", {"output.weight": None}, model)
    own = gguf(tmp_path / "own.gguf", {"output.weight": zeros(VOCABULARY, HIDDEN)}, model)

    assert (tied.config.tied_embeddings, own.config.tied_embeddings) == (True, False)
    check_checkpoint(tied)
    check_checkpoint(own)


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"blk.0.attn_q.bias": zeros(HIDDEN)}, r"is not used: blk\.0\.attn_q\.bias; biases are not built"),
        ({"blk.1.ffn_down.bias": zeros(HIDDEN)}, r"blk\.1\.ffn_down\.bias"),
        ({"blk.0.attn_output.bias": zeros(HIDDEN)}, r"blk\.0\.attn_output\.bias"),
        ({"blk.0.attn_q.scale": zeros(1)}, r"blk\.0\.attn_q\.scale"),
        ({"blk.0.ffn_gate_exps.weight": zeros(2, 2, 2)}, r"ffn_gate_exps\.weight; a mixture of experts"),
        ({"blk.0.attn_q_norm.weight": zeros(64)}, r"blk\.0\.attn_q_norm\.weight"),
        ({"blk.2.attn_q.weight": zeros(HIDDEN, HIDDEN)}, r"blk\.2\.attn_q\.weight"),
        ({"blk.00.attn_q.weight": zeros(HIDDEN, HIDDEN)}, r"blk\.00\.attn_q\.weight"),
        ({"blk.0.attn_qkv.weight": zeros(HIDDEN, HIDDEN)}, r"blk\.0\.attn_qkv\.weight"),
        ({"rope_factors_long.weight": zeros(32)}, r"rope_factors_long\.weight; rope scaling of this kind"),
        ({"cls.output.weight": zeros(2, HIDDEN)}, r"cls\.output\.weight"),
        ({"model.norm.weight": zeros(HIDDEN)}, r"is not used: model\.norm\.weight"),
        ({"lm_head.weight": zeros(VOCABULARY, HIDDEN)}, r"is not used: lm_head\.weight"),
        ({"output_norm.weight": None}, r"no tensor model\.norm\.weight"),
        ({"blk.1.attn_v.weight": None}, r"no tensor model\.layers\.1\.self_attn\.v_proj\.weight"),
        ({"output_norm.weight": zeros(HIDDEN + 1)}, r"output_norm\.weight has the shape \(129,\)"),
        ({"blk.0.attn_q.weight": zeros(HIDDEN, 2 * HIDDEN)}, r"blk\.0\.attn_q\.weight has the shape"),
        ({"output_norm.weight": np.zeros(HIDDEN, np.int8)}, r"output_norm\.weight has the dtype I8"),
        ({"output_norm.weight": np.zeros(HIDDEN, np.float64)}, r"output_norm\.weight has the dtype F64"),
    ],
)
def test_a_gguf_with_other_tensors_than_the_models_is_refused(
    tmp_path: Path, tensors: dict[str, Any], says: str
) -> None:
    checkpoint = gguf(tmp_path / "m.gguf", tensors)

    with pytest.raises(CheckpointError, match=says):
        check_checkpoint(checkpoint)


def test_qwen3_has_no_factors_of_frequencies(tmp_path: Path) -> None:
    factors = {"rope_freqs.weight": np.ones(32, np.float32)}

    check_checkpoint(gguf(tmp_path / "llama.gguf", factors))
    with pytest.raises(CheckpointError, match=r"is not used: rope_freqs\.weight"):
        check_checkpoint(gguf(tmp_path / "qwen3.gguf", factors, QWEN3))


def test_a_build_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder(tmp_path / "model", {Q_BIAS: zeros(128)})

    with pytest.raises(CheckpointError, match="biases"):
        build(BuildOptions("qwen3", checkpoint=tmp_path / "model", target="host"), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def one(value: float, dtype: Any = np.float32) -> dict[str, Any]:
    """A tensor with one value among zeros, the last of its block."""
    down = np.zeros((HIDDEN, 256), dtype)
    down[-1, -1] = value
    return {"model.layers.1.mlp.down_proj.weight": down}


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        (one(np.nan), "a value that is not a finite number"),
        (one(np.inf), "a value that is not a finite number"),
        (one(-np.inf), "a value that is not a finite number"),
        (one(np.nan, np.float16), "a value that is not a finite number"),
        (one(-np.nan, ml_dtypes.bfloat16), "a value that is not a finite number"),
        (one(np.inf, ml_dtypes.bfloat16), "a value that is not a finite number"),
        (one(3.4e38), r"a value of 3\.4e\+38, which bf16 cannot represent"),
        (one(-3.4e38), r"a value of 3\.4e\+38, which bf16 cannot represent"),
    ],
)
def test_weights_that_bf16_does_not_hold_are_refused_by_name(
    tmp_path: Path, compiled_once: None, tensors: Tensors, says: str
) -> None:
    folder(tmp_path / "model", tensors)

    with pytest.raises(CheckpointError, match=rf"^model\.layers\.1\.mlp\.down_proj\.weight has {says}"):
        build(BuildOptions("qwen3", checkpoint=tmp_path / "model", target="host"), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_largest_values_of_bf16_are_kept(tmp_path: Path, compiled_once: None) -> None:
    folder(tmp_path / "model", one(float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)))
    build(BuildOptions("qwen3", checkpoint=tmp_path / "model", target="host"), tmp_path / "out")

    assert (tmp_path / "out" / "weights.safetensors").exists()


def test_a_gguf_of_qwen3_keeps_the_order_of_its_rows(tmp_path: Path) -> None:
    checkpoint: Checkpoint = gguf(tmp_path / "m.gguf", {}, QWEN3)

    assert checkpoint.config == replace(QWEN3.config, norm_eps=float(np.float32(1e-6)))
    for name in QWEN3.all():
        assert np.array_equal(checkpoint.tensor(name), QWEN3.tensor(name).astype(np.float32)), name
