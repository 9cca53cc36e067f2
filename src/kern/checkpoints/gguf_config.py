"""A transformer read from the metadata of a GGUF file, with llama.cpp's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from kern.checkpoints.config import FAMILIES, Family, TransformerConfig, UnsupportedModel, shown
from kern.checkpoints.fields import Table, check_fields, number, size, unknown_fields
from kern.checkpoints.gguf_fields import ARCHITECTURE_FIELDS, GGUF_FIELDS
from kern.checkpoints.rope import Linear, RopeScaling, Yarn, yarn_amplitude

_THETA: Final = 10000.0


def from_gguf(
    metadata: Mapping[str, Any], *, tied_embeddings: bool, rows: int | None = None, divisors: tuple[float, ...] = ()
) -> TransformerConfig:
    """Read GGUF metadata (`llama.block_count`, ...). Raises UnsupportedModel.

    `rows` is the height of the embedding, the default of the vocabulary size. `divisors` are the values of
    the tensor `rope_freqs.weight`.
    """
    family = _family(metadata)
    check_fields(metadata, _fields(family))
    prefix = f"{family}."
    values = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    layers = size(values, "block_count")
    heads, hidden = _of_all_layers(values, "attention.head_count", layers), size(values, "embedding_length")
    max_positions = size(values, "context_length")
    return TransformerConfig(
        family=family,
        layers=layers,
        hidden=hidden,
        ffn=_of_all_layers(values, "feed_forward_length", layers),
        heads=heads,
        kv_heads=_of_all_layers(values, "attention.head_count_kv", layers, heads),
        head_dim=_head_dim(values, hidden // heads),
        vocabulary=_vocabulary(values, metadata.get("tokenizer.ggml.tokens"), rows),
        max_positions=max_positions,
        rope_theta=number(values, "rope.freq_base", _THETA),
        norm_eps=number(values, "attention.layer_norm_rms_epsilon"),
        tied_embeddings=tied_embeddings,
        qk_norm=family == "qwen3",
        rope_scaling=_scaling(values, divisors, max_positions),
    )


def unknown_metadata(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The unknown keys."""
    return tuple(unknown_fields(metadata, _fields(_family(metadata))))


def _fields(family: Family) -> Table:
    return {**GGUF_FIELDS, **{f"{family}.{key}": field for key, field in ARCHITECTURE_FIELDS.items()}}


def _family(metadata: Mapping[str, Any]) -> Family:
    family = metadata.get("general.architecture")
    if family not in FAMILIES:
        help = f"{' and '.join(FAMILIES)} can be read from GGUF"
        if metadata.get(f"{family}.expert_count"):
            raise UnsupportedModel(f"the GGUF's architecture is {shown(family)}, a mixture of experts", help)
        raise UnsupportedModel(f"the GGUF's architecture is {shown(family)}", help)
    return cast(Family, family)


def _of_all_layers(values: Mapping[str, Any], key: str, layers: int, default: int | None = None) -> int:
    """A size that may also be given per layer."""
    found = values.get(key)
    if not isinstance(found, list) or not found:
        return size(values, key, default)
    if len(found) != layers or any(each != found[0] for each in found):
        raise UnsupportedModel(f"{key} in the model's config is {shown(found)}", "all layers are built alike")
    return size({key: found[0]}, key)


def _head_dim(values: Mapping[str, Any], default: int) -> int:
    head_dim = size(values, "attention.key_length", default)
    for key, what in (("attention.value_length", "values"), ("rope.dimension_count", "rotated elements")):
        found = size(values, key, head_dim if key == "rope.dimension_count" else default)
        if found != head_dim:
            raise UnsupportedModel(f"the GGUF's heads have {found} {what}, not {head_dim}", f"{key} must be {head_dim}")
    return head_dim


def _vocabulary(values: Mapping[str, Any], tokens: Any, rows: int | None) -> int:
    """The rows of the embedding, which must agree with the tokens and the metadata."""
    if rows is None:
        return size(values, "vocab_size")
    for name, found in (
        ("vocab_size", size(values, "vocab_size", rows)),
        ("the number of tokens", len(tokens) if isinstance(tokens, list) else rows),
    ):
        if found != rows:
            raise UnsupportedModel(f"{name} is {found}, but token_embd.weight has {rows} rows")
    return rows


def _scaling(values: Mapping[str, Any], divisors: tuple[float, ...], max_positions: int) -> RopeScaling | None:
    """Scaling as llama.cpp reads it: the default type is linear, the default factor 1."""
    kind = values.get("rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn"):
        raise UnsupportedModel(f"rope scaling of type {shown(kind)}", "none, linear and yarn can be built")
    key = "rope.scaling.factor" if "rope.scaling.factor" in values else "rope.scale_linear"
    factor = 1.0 if values.get(key, 0) == 0 else number(values, key)
    amplitude = number(values, "rope.scaling.attn_factor", 1.0)
    curve: Linear | Yarn | None = None
    if kind == "linear" and factor != 1:
        curve = Linear(factor)
    if kind == "yarn" and factor != 1:
        positions = "rope.scaling.original_context_length"
        original = max_positions if values.get(positions, 0) == 0 else size(values, positions)
        curve, amplitude = Yarn(factor, original), amplitude * yarn_amplitude(factor)
    plain = curve is None and not divisors and amplitude == 1
    return None if plain else RopeScaling(curve, divisors, amplitude)
