"""GGUF files: rows put back in order, names translated, other files refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFWriter

from kern.models.checkpoint import CheckpointError
from kern.models.config import UnsupportedModel
from kern.models.gguf_checkpoint import GgufCheckpoint, unpaired
from kern.models.tokenizer import tokenizer_from_gguf
from kern.models.weights import weights_of
from support.reference import SMOLLM2_CONFIG


def small_gguf(path: Path, *, architecture: str = "llama", pre: str = "smollm", scaled: bool = False) -> Path:
    """One layer of width 8 with two heads of four, its rows numbered."""
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(16)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_context_length(64)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(4)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(["a", "b", "ab", "<end>"])
    writer.add_token_types([1, 1, 1, 3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(3)
    numbered = np.arange(8, dtype=np.float32)[:, None].repeat(8, axis=1)
    for name, rows in (("attn_q", 8), ("attn_k", 4), ("attn_v", 4)):
        writer.add_tensor(f"blk.0.{name}.weight", numbered[:rows])
    writer.add_tensor("output.weight", numbered[:4])
    if scaled:
        writer.add_tensor("rope_freqs.weight", np.ones(2, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_rows_of_queries_and_keys_are_put_back_in_order(tmp_path: Path) -> None:
    checkpoint = GgufCheckpoint(small_gguf(tmp_path / "m.gguf"))
    layer = "model.layers.0.self_attn."

    # In the file rows 2i and 2i + 1 of a head are its elements i and i + D/2.
    assert checkpoint.tensor(layer + "q_proj.weight")[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert checkpoint.tensor(layer + "k_proj.weight")[:, 0].tolist() == [0, 2, 1, 3]
    assert checkpoint.tensor(layer + "v_proj.weight")[:, 0].tolist() == [0, 1, 2, 3]


def test_putting_rows_back_undoes_the_converters_permutation() -> None:
    rows = np.random.default_rng(0).normal(size=(96, 5))
    converted = rows.reshape(3, 2, 16, 5).swapaxes(1, 2).reshape(96, 5)

    assert np.array_equal(unpaired(converted, 3), rows)


def test_the_config_and_the_text_side_come_from_the_metadata(tmp_path: Path) -> None:
    checkpoint = GgufCheckpoint(small_gguf(tmp_path / "m.gguf"))

    assert (checkpoint.config.head_dim, checkpoint.config.kv_heads) == (4, 1)
    assert not checkpoint.config.tied_embeddings
    assert (checkpoint.text.stop_ids, checkpoint.text.bos, checkpoint.text.chat_template) == ((3,), None, None)


def test_smollm2s_metadata_gives_its_published_config(smollm2_gguf: Path) -> None:
    checkpoint = GgufCheckpoint(smollm2_gguf)

    assert checkpoint.config == SMOLLM2_CONFIG
    assert checkpoint.text.stop_ids == (2,)
    sources = [source for weight in weights_of(checkpoint.config).values() for source in weight.sources]
    assert len(sources) == 272


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tensor for model\.norm\.weight"):
        GgufCheckpoint(small_gguf(tmp_path / "m.gguf")).tensor("model.norm.weight")


def test_metadata_that_is_needed_and_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="lacks tokenizer"):
        tokenizer_from_gguf({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm"})


def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="'qwen2'"):
        _ = GgufCheckpoint(small_gguf(tmp_path / "m.gguf", pre="qwen2")).text


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="'mamba'"):
        _ = GgufCheckpoint(small_gguf(tmp_path / "m.gguf", architecture="mamba")).config


def test_scaled_rope_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="scales its rope"):
        GgufCheckpoint(small_gguf(tmp_path / "m.gguf", scaled=True))


@pytest.mark.parametrize("size", [0, 3, 100, 700])
def test_a_truncated_file_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(small_gguf(tmp_path / "whole.gguf").read_bytes()[:size])

    with pytest.raises(CheckpointError, match=r"m\.gguf"):
        GgufCheckpoint(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot read"):
        GgufCheckpoint(tmp_path / "none.gguf")
