"""A transformer read from a Hugging Face config.json, with transformers' defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from kern.checkpoints.config import FAMILIES, Family, TransformerConfig, UnsupportedModel, shown
from kern.checkpoints.fields import Table, check_fields, flag, number, size, unknown_fields
from kern.checkpoints.hf_fields import HF_FIELDS, ROPE_FIELDS, ROPE_USES
from kern.checkpoints.rope import Linear, Llama3, RopeScaling, Yarn, yarn_amplitude


@dataclass(frozen=True, slots=True)
class _Defaults:
    """Default sizes (transformers 5.24, `LlamaConfig` and `Qwen3Config`)."""

    vocabulary: int
    ffn: int
    max_positions: int
    kv_heads: int | None
    head_dim: int | None
    window: int | None


_DEFAULTS: Final[Mapping[Family, _Defaults]] = {
    "llama": _Defaults(32000, 11008, 2048, None, None, None),
    "qwen3": _Defaults(151936, 22016, 32768, 32, 128, 4096),
}
_HIDDEN: Final = 4096
_LAYERS: Final = 32
_HEADS: Final = 32
_WINDOW_LAYERS: Final = 28
_THETA: Final = 10000.0


def from_hugging_face(config: Mapping[str, Any], fields: Table = HF_FIELDS) -> TransformerConfig:
    """Read a Hugging Face config.json. Raises UnsupportedModel, naming the field."""
    family = _family(config)
    check_fields(config, fields)
    defaults = _DEFAULTS[family]
    heads, hidden = size(config, "num_attention_heads", _HEADS), size(config, "hidden_size", _HIDDEN)
    max_positions = size(config, "max_position_embeddings", defaults.max_positions)
    theta, scaling = _rope(config, max_positions)
    layers = size(config, "num_hidden_layers", _LAYERS)
    _check_windows(config, family, layers, max_positions)
    return TransformerConfig(
        family=family,
        layers=layers,
        hidden=hidden,
        ffn=size(config, "intermediate_size", defaults.ffn),
        heads=heads,
        kv_heads=_or_none(config, "num_key_value_heads", defaults.kv_heads) or heads,
        head_dim=_or_none(config, "head_dim", defaults.head_dim) or defaults.head_dim or _shared(hidden, heads),
        vocabulary=size(config, "vocab_size", defaults.vocabulary),
        max_positions=max_positions,
        rope_theta=theta,
        norm_eps=number(config, "rms_norm_eps", 1e-6),
        tied_embeddings=flag(config, "tie_word_embeddings", False),
        qk_norm=family == "qwen3",
        rope_scaling=scaling,
    )


def unknown_settings(config: Mapping[str, Any], fields: Table = HF_FIELDS) -> tuple[str, ...]:
    """The unknown fields of a config.json, and RoPE settings that its type does not have."""
    name, rope = _rope_settings(config)
    kind = _rope_type(rope)
    used = {*ROPE_USES.get(kind, ())}
    others = (key for use in ROPE_USES.values() for key in use if key not in used)
    unused = {*unknown_fields(rope, ROPE_FIELDS), *(key for key in others if rope.get(key) is not None)}
    return (*unknown_fields(config, fields), *(f"{name}.{key}" for key in rope if key in unused))


def check_architecture(config: Mapping[str, Any]) -> None:
    """Raises UnsupportedModel for a model that does not predict the next token."""
    wanted = f"{_family(config)}ForCausalLM".lower()
    found = config.get("architectures")
    names = found if isinstance(found, Sequence) and not isinstance(found, str) else [found]
    if found and wanted not in [str(name).lower() for name in names]:
        raise UnsupportedModel(f"architectures is {shown(found)}", "only …ForCausalLM models are supported")


def _family(config: Mapping[str, Any]) -> Family:
    family = config.get("model_type")
    if family in FAMILIES:
        return cast(Family, family)
    if any(config.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts")):
        raise UnsupportedModel(
            f"model_type is {shown(family)}, a mixture of experts", "only dense models are supported"
        )
    raise UnsupportedModel(f"model_type is {shown(family)}", f"supported: {', '.join(FAMILIES)}")


def _or_none(config: Mapping[str, Any], key: str, default: int | None) -> int | None:
    """A size; None where it is null, or absent without a default."""
    return None if config.get(key, default) is None else size(config, key, default)


def _shared(hidden: int, heads: int) -> int:
    """Elements of a head where the heads share the hidden size."""
    if hidden % heads:
        raise UnsupportedModel(f"head_dim is missing, and hidden_size {hidden} is not a multiple of {heads} heads")
    return hidden // heads


def _check_windows(config: Mapping[str, Any], family: Family, layers: int, positions: int) -> None:
    """Raises UnsupportedModel where a layer does not attend to the whole context."""
    types = config.get("layer_types")
    if types is not None:
        full = ("full_attention", "attention")  # the second is an older name
        if not isinstance(types, list) or len(types) != layers or any(each not in full for each in types):
            raise UnsupportedModel(f"layer_types is {shown(types)}", "every layer must have 'full_attention'")
        return
    if not flag(config, "use_sliding_window", family == "llama"):
        return
    window = _or_none(config, "sliding_window", _DEFAULTS[family].window)
    first = config.get("max_window_layers", _WINDOW_LAYERS) if family == "qwen3" else 0
    if type(first) is not int or first < 0:
        raise UnsupportedModel(f"max_window_layers is {shown(first)}, not a number of layers")
    if window is not None and window < positions and first < layers:
        raise UnsupportedModel(f"sliding_window is {window}", "layers that see less than the context are not built")


def _rope_settings(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """RoPE settings and their field: `rope_scaling` in transformers 4, `rope_parameters` in 5."""
    found: dict[str, Mapping[str, Any]] = {}
    for key in ("rope_scaling", "rope_parameters"):
        settings = config.get(key)
        if not isinstance(settings, Mapping | None):
            raise UnsupportedModel(f"{key} in the model's config is {shown(settings)}, not an object")
        if settings:
            found[key] = settings
    if len(found) == 2 and found["rope_scaling"] != found["rope_parameters"]:
        raise UnsupportedModel(
            f"rope_scaling is {shown(found['rope_scaling'])}, but rope_parameters is {shown(found['rope_parameters'])}",
            "they name the same setting: remove the wrong one",
        )
    return next(iter(found.items()), ("rope_parameters", {}))


def _rope_type(rope: Mapping[str, Any]) -> str:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if "rope_type" in rope and rope.get("type", kind) != kind:
        raise UnsupportedModel(
            f"rope_type is {shown(kind)}, but type is {shown(rope.get('type'))}",
            "they name the same setting: remove the wrong one",
        )
    if not isinstance(kind, str) or kind not in ROPE_USES:
        raise UnsupportedModel(f"unknown type of RoPE scaling {shown(kind)}", f"supported: {', '.join(ROPE_USES)}")
    return kind


def _rope(config: Mapping[str, Any], max_positions: int) -> tuple[float, RopeScaling | None]:
    """Theta and the scaling."""
    _, rope = _rope_settings(config)
    kind = _rope_type(rope)
    check_fields(rope, ROPE_FIELDS)
    theta = _agreed(rope, config, "rope_theta", _THETA)
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, RopeScaling(Linear(number(rope, "factor")))
    positions = _original_positions(rope, config, max_positions)
    return theta, _llama3(rope, positions) if kind == "llama3" else _yarn(rope, positions, max_positions)


def _agreed(rope: Mapping[str, Any], config: Mapping[str, Any], key: str, default: float) -> float:
    """A number from the RoPE settings or the config. Raises UnsupportedModel where they differ."""
    outside = number(config, key, default)
    inside = number(rope, key, outside)
    if key in config and inside != outside:
        raise UnsupportedModel(
            f"{key} is {outside:g} in the config and {inside:g} in its RoPE settings", "remove the wrong one"
        )
    return inside


def _original_positions(rope: Mapping[str, Any], config: Mapping[str, Any], max_positions: int) -> int:
    key = "original_max_position_embeddings"
    within = {name: settings[key] for name, settings in (("rope", rope), ("config", config)) if settings.get(key)}
    found = [size({key: value}, key) for value in within.values()]
    if len({*found}) > 1:
        raise UnsupportedModel(f"{key} is {found[1]} in the config and {found[0]} in its RoPE settings")
    return found[0] if found else max_positions


def _llama3(rope: Mapping[str, Any], positions: int) -> RopeScaling:
    low, high = number(rope, "low_freq_factor"), number(rope, "high_freq_factor")
    if high <= low:
        raise UnsupportedModel(f"high_freq_factor {high:g} is not above low_freq_factor {low:g}")
    return RopeScaling(Llama3(number(rope, "factor"), low, high, positions))


def _yarn(rope: Mapping[str, Any], positions: int, max_positions: int) -> RopeScaling:
    ratio = max_positions / positions if "factor" in rope else None
    factor = number(_set(rope, "factor"), "factor", ratio)
    # transformers treats 0 as absent, but not in the other fields.
    weights = [_set(rope, key, 0).get(key) for key in ("mscale", "mscale_all_dim")]
    if "attention_factor" in _set(rope, "attention_factor"):
        amplitude = number(rope, "attention_factor")
    elif all(weight is not None for weight in weights):
        upper, lower = (yarn_amplitude(factor, number(rope, key)) for key in ("mscale", "mscale_all_dim"))
        amplitude = upper / lower
    else:
        amplitude = yarn_amplitude(factor)
    fast = number(_set(rope, "beta_fast", 0), "beta_fast", 32.0)
    slow = number(_set(rope, "beta_slow", 0), "beta_slow", 1.0)
    return RopeScaling(Yarn(factor, positions, fast, slow, flag(rope, "truncate", True)), amplitude=amplitude)


def _set(rope: Mapping[str, Any], key: str, *unset: object) -> Mapping[str, Any]:
    """Only this field; nothing if it is null or one of `unset`."""
    value = rope.get(key)
    return {} if value is None or value in unset else {key: value}
