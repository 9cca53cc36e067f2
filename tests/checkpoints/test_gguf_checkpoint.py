"""GGUF files: rows put back in order, names translated, other files refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.config import UnsupportedModel
from kern.checkpoints.gguf_checkpoint import GgufCheckpoint, unpaired
from kern.checkpoints.gguf_text import text_of_gguf
from kern.models.text_files import text_settings
from kern.models.weights import weights_of
from support.reference import SMOLLM2_CONFIG

TOKENIZER: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": ["a", "b", "ab"],
    "tokenizer.ggml.token_type": [1, 1, 3], "tokenizer.ggml.merges": ["a b"],
}  # fmt: skip


def small_gguf(path: Path, *, architecture: str = "llama", pre: str = "smollm") -> Path:
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
    assert checkpoint.text.stop_ids == (2, 0, 4)  # <|im_end|>, <|endoftext|>, <reponame>
    sources = [source for weight in weights_of(checkpoint.config).values() for source in weight.sources]
    assert len(sources) == 272


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no tensor for model\.norm\.weight"):
        GgufCheckpoint(small_gguf(tmp_path / "m.gguf")).tensor("model.norm.weight")


@pytest.mark.parametrize("key", ["tokens", "token_type", "merges"])
def test_metadata_that_is_needed_and_missing_is_named(key: str) -> None:
    with pytest.raises(CheckpointError, match=rf"the GGUF has no tokenizer\.ggml\.{key}"):
        text_of_gguf({name: value for name, value in TOKENIZER.items() if not name.endswith(key)}, Path("m.gguf"))


@pytest.mark.parametrize("model", ["bert", "t5", "rwkv", "no_vocab", None])
def test_a_tokenizer_of_another_kind_is_refused(model: str | None) -> None:
    has = "no tokenizer" if model is None else f"a tokenizer of the unknown kind {model!r}"
    with pytest.raises(CheckpointError, match=f"the GGUF has {has}"):
        text_of_gguf(TOKENIZER | {"tokenizer.ggml.model": model}, Path("m.gguf"))


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="'mamba'"):
        _ = GgufCheckpoint(small_gguf(tmp_path / "m.gguf", architecture="mamba")).config


@pytest.mark.parametrize("size", [0, 3, 100, 700])
def test_a_truncated_file_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(small_gguf(tmp_path / "whole.gguf").read_bytes()[:size])

    with pytest.raises(CheckpointError, match=r"m\.gguf"):
        GgufCheckpoint(path)


def test_a_fifo_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")

    with pytest.raises(CheckpointError, match=r"m\.gguf: it is not a regular file"):
        GgufCheckpoint(tmp_path / "m.gguf")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot read .*; give a GGUF file"):
        GgufCheckpoint(tmp_path / "none.gguf")


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"tokens": ["a", "a", "ab"]}, "2 of them distinct"),
        ({"tokens": ["a", "b", 3]}, "tokens in the GGUF is not a list of str"),
        ({"tokens": "ab"}, "tokens in the GGUF is not a list of str"),
        ({"token_type": [1, 1]}, "2 token types"),
        ({"token_type": [1, 1, 1.5]}, "token_type in the GGUF is not a list of int"),
        ({"merges": ["ab"]}, "merge 'ab'"),
        ({"merges": ["a c"]}, "merge 'a c'"),
        ({"merges": ["b a"]}, "merge 'b a'"),
        ({"merges": [1]}, "merges in the GGUF is not a list of str"),
        ({"model": ["gpt2"]}, "tokenizer of the unknown kind"),
    ],
)
def test_a_damaged_tokenizer_is_refused(edit: dict[str, Any], says: str) -> None:
    text_of_gguf(TOKENIZER, Path("m.gguf"))
    with pytest.raises(CheckpointError, match=says):
        text_of_gguf(TOKENIZER | {f"tokenizer.ggml.{key}": value for key, value in edit.items()}, Path("m.gguf"))


@pytest.mark.parametrize("count", [2**20, 2**40, 2**64 - 1])
def test_a_list_longer_than_its_file_is_refused_at_once(tmp_path: Path, count: int) -> None:
    data = small_gguf(tmp_path / "m.gguf").read_bytes()
    types = data.index(b"tokenizer.ggml.token_type") + len("tokenizer.ggml.token_type") + 8
    assert data[types : types + 8] == (4).to_bytes(8, "little")
    cut = data[:types] + count.to_bytes(8, "little") + bytes(4 * 100)
    (tmp_path / "m.gguf").write_bytes(cut)

    with pytest.raises(CheckpointError, match="not a complete GGUF file"):
        GgufCheckpoint(tmp_path / "m.gguf")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound file, to be damaged."""
    return small_gguf(tmp_path_factory.mktemp("gguf") / "m.gguf")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 1100), st.binary(min_size=1, max_size=8)), min_size=1, max_size=3),
    st.integers(0, 1600),
)
def test_a_damaged_file_is_read_or_refused(whole: Path, edits: list[tuple[int, bytes]], cut: int) -> None:
    data = bytearray(whole.read_bytes())
    for place, content in edits:
        data[place : place + len(content)] = content
    path = whole.with_name("damaged.gguf")
    path.write_bytes(data[: len(data) - cut if cut % 4 == 0 else len(data)])
    try:
        checkpoint = GgufCheckpoint(path)
        text_settings(checkpoint.config, checkpoint.text)
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
            checkpoint.tensor(f"model.layers.0.{name}.weight")
    except (CheckpointError, UnsupportedModel) as error:
        assert error.message  # noqa: PT017
