"""Sizes read from configs of both kinds, and what is refused instead of built wrongly."""

from __future__ import annotations

from typing import Any

import pytest

from kern.checkpoints.config import PRESETS, UnsupportedModel, preset
from kern.checkpoints.gguf_config import from_gguf
from kern.checkpoints.hf_config import from_hugging_face

LLAMA: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 30, "hidden_size": 576, "intermediate_size": 1536,
    "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192,
    "rope_theta": 100000, "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "hidden_act": "silu",
    "attention_bias": False, "rope_scaling": None, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3: dict[str, Any] = {
    "model_type": "qwen3", "num_hidden_layers": 36, "hidden_size": 2560, "intermediate_size": 9728,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
    "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "tie_word_embeddings": True,
    "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}, "use_sliding_window": False,
}  # fmt: skip
GGUF: dict[str, Any] = {
    "general.architecture": "llama", "llama.block_count": 30, "llama.embedding_length": 576,
    "llama.feed_forward_length": 1536, "llama.attention.head_count": 9, "llama.attention.head_count_kv": 3,
    "llama.vocab_size": 49152, "llama.context_length": 8192, "llama.rope.freq_base": 100000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.dimension_count": 64,
}  # fmt: skip


def test_a_config_and_gguf_metadata_of_one_model_agree() -> None:
    config = from_hugging_face(LLAMA)

    assert config == from_gguf(GGUF, tied_embeddings=True)
    assert (config.head_dim, config.qkv_size, config.rope_theta) == (64, 960, 1e5)


def test_qwen3s_config_gives_the_known_shape() -> None:
    assert from_hugging_face(QWEN3) == preset("qwen3", "qwen3-4b")


def test_a_missing_number_of_key_heads_means_as_many_as_query_heads() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}

    assert from_hugging_face(config).kv_heads == 9


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"model_type": "mamba"}, "'mamba'"),
        ({"model_type": ["llama"]}, "model_type"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"hidden_size": "576"}, "hidden_size in the model's config is '576'"),
        ({"vocab_size": None}, "vocab_size"),
        ({"num_hidden_layers": 0}, "below 1"),
        ({"num_key_value_heads": 2}, "9 query heads"),
        ({"head_dim": 33}, "33 is odd"),
        ({"num_attention_heads": 0}, "num_attention_heads in the model's config is 0, below 1"),
        ({"num_key_value_heads": 0}, "num_key_value_heads"),
        ({"rms_norm_eps": "abc"}, "rms_norm_eps in the model's config is 'abc'"),
        ({"rms_norm_eps": float("inf")}, "rms_norm_eps"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"rms_norm_eps": True}, "rms_norm_eps"),
        ({"rope_theta": None}, "rope_theta"),
        ({"rope_theta": -1.0}, "rope_theta"),
        ({"rope_parameters": {"rope_theta": [1]}}, "rope_theta"),
        ({"rope_scaling": [1]}, r"rope_scaling in the model's config is \[1\], not an object"),
        ({"rope_parameters": 3}, "rope_parameters"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings"),
        ({"hidden_size": 9 * 2**24}, "hidden is 150994944"),
        ({"hidden_size": 2**62}, "hidden_size in the model's config is 4611686018427387904, above"),
        ({"hidden_size": 10**3000}, "hidden_size"),
        ({"num_hidden_layers": 10**9}, "layers is 1000000000"),
        ({"max_position_embeddings": 10**9}, "max_positions"),
        ({"vocab_size": 10**9}, "vocabulary"),
        ({"num_attention_heads": 2**24, "head_dim": 256}, "width of queries"),
        ({"model_type": "x" * 10_000}, "x…"),
    ],
)
def test_what_is_not_built_is_refused_by_its_key(edit: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedModel, match=says) as caught:
        from_hugging_face(LLAMA | edit)

    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"general.architecture": "falcon"}, "'falcon'"),
        ({"llama.rope.dimension_count": 32}, "32 rotated elements, not 64"),
        ({"llama.rope.scaling.type": "longrope"}, "'longrope'"),
        ({"llama.block_count": None}, "block_count"),
        ({"llama.block_count": 2**32 - 1}, "layers"),
        ({"llama.attention.head_count": [1, 2]}, "attention.head_count"),
        ({"llama.attention.head_count": 0}, "attention.head_count"),
        ({"llama.rope.freq_base": "x"}, "rope.freq_base"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "layer_norm_rms_epsilon"),
        ({"llama.rope.scaling.type": ["none"]}, "rope scaling"),
    ],
)
def test_what_is_not_built_from_gguf_is_refused(edit: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedModel, match=says):
        from_gguf(GGUF | edit, tied_embeddings=True)


def test_an_unknown_preset_names_those_that_are_known() -> None:
    with pytest.raises(UnsupportedModel, match="qwen3-8b, tiny"):
        preset("qwen3", "5b")


def test_presets_are_of_their_family() -> None:
    for family, presets in PRESETS.items():
        for config in presets.values():
            assert config.family == family
            assert config.qk_norm == (family == "qwen3")
