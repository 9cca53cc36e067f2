"""Scaled rotary positions in both formats: frequencies and scores are transformers' and llama.cpp's."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.config import Family, TransformerConfig, UnsupportedModel
from kern.checkpoints.gguf_checkpoint import GgufCheckpoint
from kern.checkpoints.gguf_config import from_gguf
from kern.checkpoints.hf_config import from_hugging_face
from kern.checkpoints.rope import frequencies
from kern.engine import score
from kern.models.weights import rope_table
from kern.runtime.loading import load
from kern.text import Tokenizer
from support.gguf_files import gguf_metadata, gguf_tensors, write_gguf
from support.hf_folder import save_model
from support.sharp import IDS, SharpCheckpoint

SAMPLES = Path(__file__).parents[1] / "samples"
EXPECTED = json.loads((SAMPLES / "transformers-rope.json").read_text())
LLAMA_CPP = json.loads((SAMPLES / "llama-cpp-rope.json").read_text())
FAMILIES: list[Family] = ["llama", "qwen3"]
SMALL: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "max_position_embeddings": 128,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = EXPECTED["frequencies"]["llama3"]["rope"]


def scaled(**rope: Any) -> TransformerConfig:
    return from_hugging_face(SMALL | {"rope_parameters": rope})


def of(config: TransformerConfig) -> np.ndarray[Any, Any]:
    return frequencies(config.head_dim, config.rope_theta, config.rope_scaling)


@pytest.mark.parametrize("case", EXPECTED["frequencies"])
def test_frequencies_are_those_of_transformers(case: str) -> None:
    expected = EXPECTED["frequencies"][case]
    rope = expected["rope"]
    new = scaled(**rope, rope_theta=expected["theta"])
    old = from_hugging_face(SMALL | {"rope_theta": expected["theta"], "rope_scaling": _in_the_old_way(rope)})

    assert of(new) == pytest.approx(expected["frequencies"], rel=1e-6)
    assert new.rope_scaling is not None
    assert new.rope_scaling.amplitude == pytest.approx(expected["amplitude"], rel=1e-7)
    assert old == new


def _in_the_old_way(rope: dict[str, Any]) -> dict[str, Any]:
    return {"type" if key == "rope_type" else key: value for key, value in rope.items()}


def test_the_table_holds_the_amplitude() -> None:
    table = rope_table(scaled(**YARN))

    assert table[0, :8] == pytest.approx(0.1 * math.log(4) + 1)
    assert table[0, 8:].tolist() == [0] * 8


def test_settings_without_a_value_are_as_transformers_takes_them() -> None:
    plain = scaled(**YARN)

    assert scaled(**YARN, beta_fast=None, beta_slow=0, mscale=0, mscale_all_dim=1.0, attention_factor=None) == plain
    assert scaled(**YARN | {"factor": None}) == scaled(**YARN | {"factor": 2.0})
    assert scaled(rope_type="default") == from_hugging_face(SMALL) == from_hugging_face(SMALL | {"rope_scaling": {}})
    outside = {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}, "original_max_position_embeddings": 64}
    assert from_hugging_face(SMALL | outside) == plain


@pytest.mark.parametrize(
    ("rope", "says"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, "'dynamic'"),
        ({"rope_type": "longrope", "factor": 2.0}, "'longrope'"),
        ({"rope_type": "proportional"}, "'proportional'"),
        ({"type": "mrope", "rope_type": "default"}, "rope_type is 'default', but type is 'mrope'"),
        ({"rope_type": None}, "type of RoPE scaling None"),
        ({"rope_type": ["yarn"]}, "type of RoPE scaling .'yarn'."),
        ({"rope_type": "linear"}, "factor in the model's config is None"),
        ({"rope_type": "linear", "factor": 0}, "factor .* is 0, not a number above 0"),
        ({"rope_type": "linear", "factor": "4"}, "factor .* is '4'"),
        ({"rope_type": "yarn"}, "factor in the model's config is None"),
        (YARN | {"factor": float("nan")}, "factor"),
        (YARN | {"attention_factor": 0}, "attention_factor"),
        (YARN | {"attention_factor": -1.0}, "attention_factor"),
        (YARN | {"beta_fast": "32"}, "beta_fast"),
        (YARN | {"beta_fast": 0.01}, "scales no frequency"),
        (YARN | {"original_max_position_embeddings": 1}, "yarn with 1 original positions"),
        (YARN | {"original_max_position_embeddings": "4"}, "original_max_position_embeddings"),
        (YARN | {"original_max_position_embeddings": 2**39}, "number of original positions is 549755813888"),
        (YARN | {"truncate": "no"}, "truncate"),
        (YARN | {"mscale": -1, "mscale_all_dim": 1}, "mscale"),
        (YARN | {"attn_factor": 2.0}, "attn_factor is 2.0"),
        (YARN | {"rope_theta": 1.0}, "yarn with"),
        (LLAMA3 | {"low_freq_factor": None}, "low_freq_factor"),
        (LLAMA3 | {"high_freq_factor": 1.0}, "high_freq_factor 1 is not above low_freq_factor 1"),
        ({"rope_type": "default", "partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ({"full_attention": {"rope_type": "default"}}, "full_attention is"),
    ],
)
def test_invalid_rope_settings_are_refused(rope: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedModel, match=says):
        scaled(**rope)


def test_two_names_of_one_setting_must_agree() -> None:
    both = SMALL | {"rope_scaling": YARN, "rope_parameters": YARN | {"factor": 8.0}}
    with pytest.raises(UnsupportedModel, match="they name the same setting"):
        from_hugging_face(both)
    with pytest.raises(UnsupportedModel, match="rope_theta is 10000 in the config and 5 in its RoPE settings"):
        from_hugging_face(SMALL | {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5.0}})
    with pytest.raises(UnsupportedModel, match="is 32 in the config and 64 in its RoPE settings"):
        from_hugging_face(SMALL | {"rope_scaling": YARN, "original_max_position_embeddings": 32})

    assert from_hugging_face(both | {"rope_parameters": YARN}) == scaled(**YARN)


def scored(folder: Path) -> float:
    with load(folder, capacity=64) as executable:
        return score(executable, Tokenizer.load(folder).settings, IDS).nll


def saved(folder: Path, checkpoint: SharpCheckpoint, rope: dict[str, Any]) -> Path:
    """A Hugging Face folder of the model with these rope settings."""
    model = save_model(folder, checkpoint)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"rope_parameters": rope}))
    return model


# Any two of the expected scores of a family are 0.19 apart.
@pytest.mark.parametrize("kind", EXPECTED["scalings"])
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_transformers(tmp_path: Path, compiled_once: None, family: Family, kind: str) -> None:
    model = saved(tmp_path / "model", SharpCheckpoint(family), EXPECTED["scalings"][kind])
    build(BuildOptions(family, checkpoint=model, target="host"), tmp_path / "out")

    assert scored(tmp_path / "out") == pytest.approx(EXPECTED["nll"][family][kind], abs=0.05)


@pytest.mark.parametrize(
    ("family", "kind"), [(family, kind) for family in FAMILIES for kind in LLAMA_CPP["nll"][family]]
)
def test_scores_of_gguf_are_those_of_llama_cpp(tmp_path: Path, compiled_once: None, family: Family, kind: str) -> None:
    checkpoint = SharpCheckpoint(family)
    keys = {f"{family}.{key}": value for key, value in LLAMA_CPP["keys"][kind].items()}
    tensors = gguf_tensors(checkpoint.config, checkpoint.all())
    if "llama3" in kind:
        plain = frequencies(checkpoint.config.head_dim, checkpoint.config.rope_theta, None)
        factors = llama3_factors(plain, **EXPECTED["scalings"]["llama3"])
        tensors["rope_freqs.weight"] = factors.astype(np.float32)
    write_gguf(tmp_path / "m.gguf", gguf_metadata(checkpoint.config) | keys, tensors)
    build(BuildOptions(family, checkpoint=tmp_path / "m.gguf", target="host"), tmp_path / "gguf")

    assert scored(tmp_path / "gguf") == pytest.approx(LLAMA_CPP["nll"][family][kind], abs=0.05)
    if kind in ("default", "linear", "yarn"):
        model = saved(tmp_path / "model", checkpoint, EXPECTED["scalings"][kind])
        build(BuildOptions(family, checkpoint=model, target="host"), tmp_path / "folder")
        ours, theirs = (tmp_path / name / "weights.safetensors" for name in ("gguf", "folder"))
        assert ours.read_bytes() == theirs.read_bytes()


def llama3_factors(plain: Any, *, factor: float, low_freq_factor: float, high_freq_factor: float, **more: Any) -> Any:
    """What llama.cpp's converter writes (convert_hf_to_gguf.py, `LlamaModel.generate_extra_tensors`)."""
    positions, found = more["original_max_position_embeddings"], []
    for frequency in plain:
        wavelength = 2 * math.pi / frequency
        if wavelength < positions / high_freq_factor:
            found.append(1.0)
        elif wavelength > positions / low_freq_factor:
            found.append(factor)
        else:
            smooth = (positions / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor)
            found.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(found)


GGUF: dict[str, Any] = gguf_metadata(replace(SharpCheckpoint("llama").config, head_dim=16, vocabulary=300))


def from_keys(**keys: Any) -> TransformerConfig:
    named = {f"llama.rope.{key}": value for key, value in keys.items()}
    return from_gguf(GGUF | named, tied_embeddings=True)


def test_gguf_scaling_has_the_defaults_of_llama_cpp() -> None:
    plain, linear = from_keys(), from_keys(**{"scaling.type": "linear", "scaling.factor": 4.0})

    assert plain.rope_scaling is None
    assert of(linear) == pytest.approx(of(plain) / 4)
    # A factor without a type is linear, the old key is one, and the new one goes before it.
    assert linear == from_keys(**{"scaling.factor": 4.0}) == from_keys(scale_linear=4.0)
    assert linear == from_keys(**{"scaling.factor": 4.0, "scale_linear": 8.0})
    assert plain == from_keys(**{"scaling.factor": 0.0}) == from_keys(**{"scaling.type": "none", "scaling.factor": 4.0})
    assert plain == from_keys(**{"scaling.type": "yarn"}) == from_keys(**{"scaling.type": "linear"})


def test_yarn_in_gguf_is_yarn_in_transformers() -> None:
    keys = {"scaling.type": "yarn", "scaling.factor": 4.0}
    config = SMALL | {"max_position_embeddings": 256}
    expected = from_hugging_face(config | {"rope_scaling": YARN}).rope_scaling

    assert from_keys(**keys, **{"scaling.original_context_length": 64}).rope_scaling == expected
    default = from_hugging_face(config | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}).rope_scaling
    assert from_keys(**keys).rope_scaling == from_keys(**keys, **{"scaling.original_context_length": 0}).rope_scaling
    assert from_keys(**keys).rope_scaling == default


def test_the_attention_factor_of_gguf_multiplies() -> None:
    keys = {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.attn_factor": 0.5}
    scaling, plain = from_keys(**keys).rope_scaling, from_keys(**{"scaling.attn_factor": 0.5}).rope_scaling

    assert scaling is not None
    assert plain is not None
    assert scaling.amplitude == pytest.approx(0.5 * (0.1 * math.log(4) + 1))
    assert (plain.amplitude, plain.curve) == (0.5, None)


@pytest.mark.parametrize(
    ("factors", "says"),
    [
        (np.ones(7, np.float32), "there are 7 factors for 32"),
        (np.zeros(32, np.float32), "not positive"),
        (np.full(32, np.nan, np.float32), "not positive"),
    ],
)
def test_invalid_factors_of_frequencies_are_refused(tmp_path: Path, factors: Any, says: str) -> None:
    checkpoint = SharpCheckpoint("llama")
    tensors = gguf_tensors(checkpoint.config, checkpoint.all()) | {"rope_freqs.weight": factors}
    path = write_gguf(tmp_path / "m.gguf", gguf_metadata(checkpoint.config), tensors)

    with pytest.raises((CheckpointError, UnsupportedModel), match=says):
        _ = GgufCheckpoint(path).config
