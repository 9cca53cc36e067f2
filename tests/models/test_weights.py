"""The weights file: every tensor aligned, merged in order, and read by the safetensors library."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open

from kern.artifact.weights import open_weights
from kern.checkpoints.checkpoint import CheckpointError, TextSource
from kern.checkpoints.config import TransformerConfig, preset
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.models.weights import rope_table, weight_group, weights_of, write_weights
from support.work import peak_bytes

# 72 and 200 are not multiples of 128 elements, so that most tensors end inside a 256-byte line.
ODD = replace(preset("qwen3", "tiny"), hidden=72, ffn=200, heads=3, kv_heads=1, head_dim=24, vocabulary=131)


def written(path: Path, checkpoint: Any) -> dict[str, NDArray[Any]]:
    """Write, and read back by the index."""
    write_weights(path, [weight_group(checkpoint)], lambda done, total: None)
    content = path.read_bytes()
    kinds = {"bf16": ml_dtypes.bfloat16, "f32": np.float32, "u8": np.uint8}
    with open_weights(path) as file:
        return {
            name: np.frombuffer(content, kinds[info.dtype or ""], int(np.prod(info.shape)), info.offset).reshape(
                info.shape
            )
            for name, info in file.tensors.items()
        }


@pytest.mark.parametrize("config", [ODD, replace(ODD, tied_embeddings=True), preset("llama", "tiny")])
def test_every_tensor_starts_at_a_multiple_of_256(tmp_path: Path, config: TransformerConfig) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, [weight_group(RandomCheckpoint(config, 1))], lambda done, total: None)

    with open_weights(path) as file:
        named = {name: info for name, info in file.tensors.items() if not name.startswith("padding.")}
        assert {info.offset % 256 for info in named.values()} == {0}
        assert {name: (info.dtype, info.shape) for name, info in named.items()} == {
            weight.name: (weight.dtype, weight.shape) for weight in weights_of(config).values()
        }
    assert ("lm_head" in named) == (not config.tied_embeddings)


def test_the_safetensors_library_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, [weight_group(RandomCheckpoint(ODD, 1))], lambda done, total: None)

    with safe_open(path, framework="numpy") as file:
        assert set(weights_of(ODD)) <= set(file.keys())
        assert file.get_slice("layers.1.qkv_proj").get_shape() == [(3 + 2) * 24, 72]
        assert np.array_equal(file.get_tensor("cos_sin"), rope_table(ODD))


def test_projections_are_merged_in_order(tmp_path: Path) -> None:
    checkpoint = RandomCheckpoint(ODD, 1)
    tensors = written(tmp_path / "w.safetensors", checkpoint)

    def source(*names: str) -> NDArray[Any]:
        return np.concatenate([checkpoint.tensor(f"model.layers.1.{name}.weight") for name in names])

    qkv = source("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    assert np.array_equal(tensors["layers.1.qkv_proj"], qkv)
    assert np.array_equal(tensors["layers.1.gate_up_proj"], source("mlp.gate_proj", "mlp.up_proj"))
    assert np.array_equal(tensors["layers.1.k_norm"], source("self_attn.k_norm"))


def test_the_rope_table_holds_cosines_then_sines() -> None:
    table = rope_table(replace(ODD, head_dim=4, rope_theta=100.0))

    assert table.shape == (4096, 4)
    assert table[0].tolist() == [1, 1, 0, 0]
    assert table[3] == pytest.approx([np.cos(3), np.cos(0.3), np.sin(3), np.sin(0.3)])


def test_the_rope_table_of_a_long_context_is_written_in_parts(tmp_path: Path) -> None:
    config = replace(preset("llama", "tiny"), layers=1, max_positions=2**16 - 3)
    path = tmp_path / "w.safetensors"
    group = weight_group(RandomCheckpoint(config, 1))
    peak = peak_bytes(lambda: write_weights(path, [group], lambda done, total: None))

    with safe_open(path, framework="numpy") as file:
        assert np.array_equal(file.get_tensor("cos_sin"), rope_table(config))
    assert peak < 20 * 2**20 < 2**16 * config.head_dim * 8  # less than the table in f64


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    reported: list[tuple[int, int]] = []
    group = weight_group(RandomCheckpoint(ODD, 1))
    write_weights(tmp_path / "w.safetensors", [group], lambda done, total: reported.append((done, total)))

    assert reported == sorted(reported)
    assert reported[-1][0] == reported[-1][1] == sum(weight.size for weight in weights_of(ODD).values())


class Misshapen:
    """A checkpoint whose tensors are those of another config."""

    config = ODD
    text = TextSource()

    def tensor(self, name: str) -> NDArray[Any]:
        return RandomCheckpoint(preset("qwen3", "tiny"), 1).tensor(name)


def test_a_tensor_of_another_shape_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"embed_tokens.weight has the shape \(512, 128\)"):
        write_weights(tmp_path / "w.safetensors", [weight_group(Misshapen())], lambda done, total: None)


def test_random_tensors_follow_the_seed_and_their_name() -> None:
    config = preset("qwen3", "tiny")
    first, same, other = (RandomCheckpoint(config, seed) for seed in (1, 1, 2))
    q, k = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight"

    assert np.array_equal(first.tensor(q), same.tensor(q))
    assert not np.array_equal(first.tensor(q), other.tensor(q))
    assert not np.array_equal(first.tensor(q), first.tensor(k))


def test_a_random_tensor_that_the_config_lacks_is_refused() -> None:
    with pytest.raises(CheckpointError, match="no tensor lm_head"):
        RandomCheckpoint(preset("llama", "tiny"), 1).tensor("lm_head.weight")


def test_random_tensors_keep_the_size_of_activations() -> None:
    checkpoint = RandomCheckpoint(preset("qwen3", "tiny"), 3)
    matrix = checkpoint.tensor("model.layers.0.mlp.down_proj.weight").astype(np.float64)
    norm = checkpoint.tensor("model.norm.weight").astype(np.float64)

    assert matrix.std() * 256**0.5 == pytest.approx(1, abs=0.02)
    assert abs(matrix.mean()) < 0.001
    assert norm.mean() == pytest.approx(1, abs=0.05)
    assert norm.std() > 0.05
