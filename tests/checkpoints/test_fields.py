"""The tables of fields say what the readers do: each field is tried with a value that tells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kern.checkpoints.config import UnsupportedModel
from kern.checkpoints.fields import Table, accepted, unknown_fields
from kern.checkpoints.gguf_config import from_gguf, unknown_metadata
from kern.checkpoints.gguf_fields import ARCHITECTURE_FIELDS, GGUF_FIELDS
from kern.checkpoints.hf_config import check_architecture, from_hugging_face, unknown_settings
from kern.checkpoints.hf_fields import GENERATION_FIELDS, HF_FIELDS, ROPE_FIELDS
from kern.models.speculation.config import DRAFT_FIELDS, from_dspark
from support.gguf_files import gguf_metadata
from support.sharp import SharpCheckpoint

CONFIG: dict[str, Any] = {
    "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 128,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LLAMA3 = YARN | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
MSCALE = YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}
DRAFT: dict[str, Any] = {
    **CONFIG, "model_type": "qwen3", "num_anchors": 4, "block_size": 7, "target_layer_ids": [0, 2], "mask_token_id": 3,
    "markov_rank": 8, "num_target_layers": 6,
}  # fmt: skip
FAMILIES = ("llama", "qwen3")
LLAMA_FIELDS: Table = {**GGUF_FIELDS, **{f"llama.{name}": each for name, each in ARCHITECTURE_FIELDS.items()}}


def hugging_face(config: Mapping[str, Any], family: str = "llama") -> object:
    settings = {"model_type": family, **CONFIG, **config}
    check_architecture(settings)
    return from_hugging_face(settings)


def gguf(keys: Mapping[str, Any], family: str = "llama") -> object:
    metadata = gguf_metadata(SharpCheckpoint(family).config)  # type: ignore[arg-type]
    return from_gguf({**metadata, **keys}, tied_embeddings=True, rows=512)


OBEYED: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "model_type": [({}, {"model_type": "qwen3"})],
    "architectures": [({}, {"architectures": ["LlamaForSequenceClassification"]})],
    **{
        key: [({}, {key: CONFIG[key] * 2})]
        for key in CONFIG
        if key not in ("num_key_value_heads", "num_attention_heads")
    },
    "num_attention_heads": [({}, {"num_attention_heads": 8})],
    "num_key_value_heads": [({}, {"num_key_value_heads": 4})],
    "rms_norm_eps": [({}, {"rms_norm_eps": 1e-5})],
    "tie_word_embeddings": [({}, {"tie_word_embeddings": True})],
    "rope_theta": [({}, {"rope_theta": 5e5})],
    "rope_scaling": [({}, {"rope_scaling": YARN})],
    "rope_parameters": [({}, {"rope_parameters": YARN})],
    "original_max_position_embeddings": [
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, {"original_max_position_embeddings": 32})
    ],
    "layer_types": [({}, {"layer_types": ["full_attention", "sliding_attention"]}), ({}, {"layer_types": []})],
    "use_sliding_window": [({"sliding_window": 64, "max_window_layers": 1}, {"use_sliding_window": True})],
    "sliding_window": [({"use_sliding_window": True, "max_window_layers": 1}, {"sliding_window": 64})],
    "max_window_layers": [({"use_sliding_window": True, "sliding_window": 64}, {"max_window_layers": 1})],
}
"""For each field that is obeyed: settings, and more of them with which something else must come of it."""
ELSEWHERE = {"eos_token_id"}
"""Obeyed by what reads the text side."""


def outcome(read: Any, *arguments: Any) -> object:
    try:
        return read(*arguments)
    except UnsupportedModel as error:
        return str(error)


@pytest.mark.parametrize("field", [name for name, each in HF_FIELDS.items() if each.verdict == "obeyed"])
def test_an_obeyed_field_of_config_json_tells(field: str) -> None:
    if field in ELSEWHERE:
        return
    for settings, more in OBEYED[field]:
        family = "qwen3" if "window" in field else "llama"
        plain = hugging_face(settings, family)
        changed = outcome(hugging_face, {**settings, **more}, family)

        assert changed != plain
        assert not isinstance(changed, str) or field in changed or "window" in field


ROPE_OBEYED = {
    "rope_type": (LLAMA3, {"rope_type": "yarn"}),
    "type": ({}, {"type": "linear", "factor": 4.0}),
    "rope_theta": (YARN, {"rope_theta": 5e5}),
    "factor": (YARN, {"factor": 8.0}),
    "original_max_position_embeddings": (YARN, {"original_max_position_embeddings": 64}),
    "low_freq_factor": (LLAMA3, {"low_freq_factor": 2.0}),
    "high_freq_factor": (LLAMA3, {"high_freq_factor": 8.0}),
    "beta_fast": (YARN, {"beta_fast": 16.0}),
    "beta_slow": (YARN, {"beta_slow": 2.0}),
    "attention_factor": (YARN, {"attention_factor": 1.5}),
    "mscale": (MSCALE, {"mscale": 0.7}),
    "mscale_all_dim": (MSCALE, {"mscale_all_dim": 0.7}),
    "truncate": (YARN, {"truncate": False}),
}


@pytest.mark.parametrize("field", [name for name, each in ROPE_FIELDS.items() if each.verdict == "obeyed"])
def test_an_obeyed_field_of_the_rope_settings_tells(field: str) -> None:
    settings, more = ROPE_OBEYED[field]

    assert hugging_face({"rope_scaling": settings}) != hugging_face({"rope_scaling": {**settings, **more}})


def refused_fields(table: Table) -> list[str]:
    return [name for name, each in table.items() if each.verdict == "refused"]


@pytest.mark.parametrize("field", refused_fields(HF_FIELDS))
@pytest.mark.parametrize("family", FAMILIES)
def test_a_refused_field_of_config_json_is_named(family: str, field: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"^{field} is 'other'"):
        hugging_face({field: "other"}, family)
    for value in (None, *HF_FIELDS[field].unless):
        assert hugging_face({field: value}, family) == hugging_face({}, family)


@pytest.mark.parametrize("field", refused_fields(ROPE_FIELDS))
def test_a_refused_field_of_the_rope_settings_is_named(field: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"^{field} is 'other'"):
        hugging_face({"rope_parameters": {field: "other"}})
    for value in (None, *ROPE_FIELDS[field].unless):
        assert hugging_face({"rope_parameters": {"rope_theta": 1e4, field: value}}) == hugging_face({})


def test_an_irrelevant_field_changes_nothing() -> None:
    for table in (HF_FIELDS, ROPE_FIELDS):
        odd = {name: ["odd"] for name, each in table.items() if each.verdict == "irrelevant"}
        settings = odd if table is HF_FIELDS else {"rope_scaling": {"rope_type": "default", **odd}}

        assert hugging_face(settings) == hugging_face({})
        assert unknown_settings({"model_type": "llama", **settings}) == ()


def test_the_defaults_are_those_of_transformers() -> None:
    llama, qwen3 = (from_hugging_face({"model_type": family}) for family in FAMILIES)

    # transformers 5.24.0, LlamaConfig and Qwen3Config
    assert (llama.vocabulary, llama.hidden, llama.ffn, llama.layers) == (32000, 4096, 11008, 32)
    assert (llama.heads, llama.kv_heads, llama.head_dim, llama.max_positions) == (32, 32, 128, 2048)
    assert (qwen3.vocabulary, qwen3.hidden, qwen3.ffn, qwen3.layers) == (151936, 4096, 22016, 32)
    assert (qwen3.heads, qwen3.kv_heads, qwen3.head_dim, qwen3.max_positions) == (32, 32, 128, 32768)
    for config in (llama, qwen3):
        assert (config.norm_eps, config.rope_theta, config.rope_scaling) == (1e-6, 1e4, None)
        assert not config.tied_embeddings
    wide = {"model_type": "qwen3", "num_attention_heads": 64}
    assert from_hugging_face(wide).kv_heads == 32
    assert from_hugging_face(wide | {"num_key_value_heads": None}).kv_heads == 64


def test_a_window_as_long_as_the_context_is_accepted() -> None:
    plain = hugging_face({}, "qwen3")
    window = {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}

    assert hugging_face({"sliding_window": 64}, "qwen3") == plain
    assert hugging_face(window | {"sliding_window": 128}, "qwen3") == plain
    assert hugging_face(window | {"sliding_window": None}, "qwen3") == plain
    assert hugging_face(window | {"max_window_layers": 2}, "qwen3") == plain
    assert hugging_face(window | {"layer_types": ["full_attention"] * 2}, "qwen3") == plain
    assert hugging_face({"layer_types": ["attention"] * 2}) == hugging_face({})
    assert hugging_face({"sliding_window": 64, "use_sliding_window": False}) == hugging_face({})
    with pytest.raises(UnsupportedModel, match="sliding_window is 64"):
        hugging_face({"sliding_window": 64})


def test_a_mixture_of_experts_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModel, match="'qwen3_moe', a mixture of experts"):
        from_hugging_face({"model_type": "qwen3_moe", "num_experts": 128})
    with pytest.raises(UnsupportedModel, match="architecture is 'qwen3moe', a mixture of experts"):
        from_gguf({"general.architecture": "qwen3moe", "qwen3moe.expert_count": 128}, tied_embeddings=False)
    with pytest.raises(UnsupportedModel, match=r"llama\.expert_count is 8; a mixture of experts"):
        gguf({"llama.expert_count": 8})
    with pytest.raises(UnsupportedModel, match="num_local_experts is 8; a mixture of experts"):
        hugging_face({"num_local_experts": 8})


NAMES: dict[str, list[str]] = json.loads((Path(__file__).parents[1] / "samples" / "checkpoint-fields.json").read_text())


@pytest.mark.parametrize("source", NAMES)
def test_every_field_of_the_owners_is_in_a_table(source: str) -> None:
    if source.endswith("GenerationConfig"):
        assert list(unknown_fields(dict.fromkeys(NAMES[source]), GENERATION_FIELDS)) == []
    elif source.startswith("gguf"):
        names = [name.format(arch="llama", id=0, name="rag", dense="dense_2") for name in NAMES[source]]
        assert list(unknown_fields(dict.fromkeys(names), LLAMA_FIELDS)) == []
    else:
        assert list(unknown_fields(dict.fromkeys(NAMES[source]), HF_FIELDS)) == []


def test_a_field_outside_the_tables_is_unknown() -> None:
    assert unknown_settings({"model_type": "llama", "hidden_size": 8, "warp": 1, "weft": None}) == ("warp", "weft")
    old = {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0, "warp": 1, "beta_fast": 32}}
    assert unknown_settings(old) == ("rope_scaling.warp", "rope_scaling.beta_fast")
    assert unknown_settings({"model_type": "llama", "rope_parameters": {"factor": 2.0}}) == ("rope_parameters.factor",)
    metadata = gguf_metadata(SharpCheckpoint("llama").config)
    assert unknown_metadata(metadata) == ()
    assert unknown_metadata(metadata | {"warp": 1, "llama.warp": 1, "qwen3.rope.freq_base": 2.0}) == (
        "warp", "llama.warp", "qwen3.rope.freq_base",
    )  # fmt: skip


GGUF_OBEYED: dict[str, dict[str, Any]] = {
    "block_count": {"block_count": 3},
    "context_length": {"context_length": 512},
    "embedding_length": {"embedding_length": 64},
    "feed_forward_length": {"feed_forward_length": 128},
    "vocab_size": {"vocab_size": 500},
    "attention.head_count": {"attention.head_count": 2},
    "attention.head_count_kv": {"attention.head_count_kv": 4},
    "attention.key_length": {"attention.key_length": 32},
    "attention.value_length": {"attention.value_length": 32},
    "attention.layer_norm_rms_epsilon": {"attention.layer_norm_rms_epsilon": 1e-3},
    "rope.dimension_count": {"rope.dimension_count": 32},
    "rope.freq_base": {"rope.freq_base": 5e5},
    "rope.scaling.type": {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0},
    "rope.scaling.factor": {"rope.scaling.factor": 4.0},
    "rope.scale_linear": {"rope.scale_linear": 4.0},
    "rope.scaling.original_context_length": {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 32,
    },
    "rope.scaling.attn_factor": {"rope.scaling.attn_factor": 0.5},
}  # fmt: skip
GGUF_ELSEWHERE = {"general.alignment", "split.no", "split.count", "split.tensors.count", "tokenizer.*"}
"""Obeyed by the reader of the file, and by what reads the text side."""


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("field", [name for name, each in ARCHITECTURE_FIELDS.items() if each.verdict == "obeyed"])
def test_an_obeyed_key_of_gguf_tells(family: str, field: str) -> None:
    keys = {f"{family}.{key}": value for key, value in GGUF_OBEYED[field].items()}
    without = {key: value for key, value in keys.items() if not key.endswith(field)}

    assert outcome(gguf, keys, family) not in (gguf({}, family), outcome(gguf, without, family))


def test_the_keys_of_gguf_that_are_obeyed_are_tried() -> None:
    obeyed = {name for name, each in GGUF_FIELDS.items() if each.verdict == "obeyed"}

    assert obeyed == GGUF_ELSEWHERE | {"general.architecture"}


def example(pattern: str) -> str:
    return pattern.replace("*", "other")


@pytest.mark.parametrize("field", refused_fields(LLAMA_FIELDS))
def test_a_refused_key_of_gguf_is_named(field: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"^{example(field)} is 'odd'"):
        gguf({example(field): "odd"})
    for value in LLAMA_FIELDS[field].unless:
        assert gguf({example(field): value}) == gguf({})


def test_an_irrelevant_key_of_gguf_changes_nothing() -> None:
    odd = {example(name): "odd" for name, each in LLAMA_FIELDS.items() if each.verdict == "irrelevant"}

    assert gguf(odd) == gguf({})


def test_sizes_of_gguf_may_be_given_for_every_layer() -> None:
    assert gguf({"llama.attention.head_count": [4, 4], "llama.feed_forward_length": [256, 256]}) == gguf({})
    for heads in ([4, 2], [4], []):
        with pytest.raises(UnsupportedModel, match=r"attention\.head_count"):
            gguf({"llama.attention.head_count": heads})


def test_a_gguf_without_vocab_size_has_the_rows_of_its_embedding() -> None:
    metadata = gguf_metadata(SharpCheckpoint("llama").config)
    del metadata["llama.vocab_size"]

    assert from_gguf(metadata, tied_embeddings=True, rows=512) == gguf({})
    with pytest.raises(UnsupportedModel, match="the number of tokens is 512, but token_embd"):
        from_gguf(metadata, tied_embeddings=True, rows=500)


DRAFT_OBEYED: dict[str, dict[str, Any]] = {
    "num_anchors": {"num_anchors": None}, "block_size": {"block_size": 3},
    "target_layer_ids": {"target_layer_ids": [1]},
    "num_target_layers": {"num_target_layers": 8}, "mask_token_id": {"mask_token_id": 5},
    "markov_rank": {"markov_rank": 16},
}  # fmt: skip


@pytest.mark.parametrize("field", sorted(DRAFT_FIELDS.keys() - HF_FIELDS.keys()))
def test_a_field_of_a_draft_does_what_its_table_says(field: str) -> None:
    def read(changes: Mapping[str, Any]) -> object:
        return outcome(from_dspark, {key: value for key, value in {**DRAFT, **changes}.items() if value is not None})

    verdict = DRAFT_FIELDS[field].verdict
    changed = read(DRAFT_OBEYED.get(field, {field: "odd"}))

    assert (changed == read({})) == (verdict == "irrelevant")
    assert verdict != "refused" or f"{field} is 'odd'" in str(changed)
    assert accepted(DRAFT_FIELDS["markov_head_type"]) == "'vanilla'"
