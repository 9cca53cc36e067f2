"""What a transformer is made of: sizes read from a checkpoint's own config, and presets of known models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, cast

from kern.manifest.errors import KernError

Family = Literal["llama", "qwen3"]
FAMILIES: Final[tuple[Family, ...]] = ("llama", "qwen3")

MAX_LAYERS: Final = 1024
MAX_POSITIONS: Final = 2**20
MAX_WIDTH: Final = 2**24
"""Bounds well beyond every known model, so that a damaged config is refused instead of built for hours."""


class UnsupportedModel(KernError):
    """A config that asks for something the generator does not build."""

    code: ClassVar[str] = "unsupported-model"
    exit_code: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """A decoder-only transformer with RMS norms, rotary positions, grouped heads and a gated MLP.

    Sizes are in elements. `qk_norm`: q and k heads are normalised before the rotation.
    `tied_embeddings`: the output projection is the embedding table.
    """

    family: Family
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    max_positions: int
    rope_theta: float
    norm_eps: float
    tied_embeddings: bool
    qk_norm: bool

    @property
    def q_size(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads; that of all value heads is the same."""
        return self.kv_heads * self.head_dim

    @property
    def qkv_size(self) -> int:
        """Width of a merged row of queries, keys and values."""
        return self.q_size + 2 * self.kv_size

    def __post_init__(self) -> None:
        """Raises UnsupportedModel for sizes out of bounds, or that do not fit together."""
        bounds = {"layers": MAX_LAYERS, "max_positions": MAX_POSITIONS}
        for name in ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocabulary", "max_positions"):
            _within(name, getattr(self, name), bounds.get(name, MAX_WIDTH))
        _within("the width of queries, keys and values", self.qkv_size, MAX_WIDTH)
        if self.heads % self.kv_heads:
            raise UnsupportedModel(f"{self.heads} query heads are no multiple of {self.kv_heads} key heads")
        if self.head_dim % 2:
            raise UnsupportedModel(f"head_dim {self.head_dim} is odd, so rotary positions cannot pair it")


def from_hugging_face(config: Mapping[str, Any]) -> TransformerConfig:
    """Read a Hugging Face config.json. Raises UnsupportedModel, naming the key that does not fit."""
    family = config.get("model_type")
    if family not in FAMILIES:
        raise UnsupportedModel(
            f"model_type is {shown(family)}", f"the families that can be built are {', '.join(FAMILIES)}"
        )
    _refuse(config)
    heads, hidden = _size(config, "num_attention_heads"), _size(config, "hidden_size")
    rope = _rope(config)
    return TransformerConfig(
        family=cast(Family, family),
        layers=_size(config, "num_hidden_layers"),
        hidden=hidden,
        ffn=_size(config, "intermediate_size"),
        heads=heads,
        kv_heads=_size(config, "num_key_value_heads", heads),
        head_dim=_size(config, "head_dim", 128 if family == "qwen3" else hidden // heads),
        vocabulary=_size(config, "vocab_size"),
        max_positions=_size(config, "max_position_embeddings"),
        rope_theta=_number(rope, "rope_theta", 10000.0),
        norm_eps=_number(config, "rms_norm_eps", 1e-6),
        tied_embeddings=_flag(config, "tie_word_embeddings"),
        qk_norm=family == "qwen3",
    )


def from_gguf(metadata: Mapping[str, Any], *, tied_embeddings: bool) -> TransformerConfig:
    """Read GGUF metadata (`llama.block_count`, ...). Raises UnsupportedModel."""
    family = metadata.get("general.architecture")
    if family != "llama":
        raise UnsupportedModel(f"the GGUF's architecture is {shown(family)}", "llama can be read from GGUF")
    values = {key.removeprefix("llama."): value for key, value in metadata.items()}
    scaling = values.get("rope.scaling.type", "none")
    if scaling != "none":
        raise UnsupportedModel(f"the GGUF asks for rope scaling of type {shown(scaling)}", "only none is built")
    heads, hidden = _size(values, "attention.head_count"), _size(values, "embedding_length")
    head_dim = _size(values, "attention.key_length", hidden // heads)
    rotated = _size(values, "rope.dimension_count", head_dim)
    if rotated != head_dim:
        raise UnsupportedModel(f"the GGUF rotates {rotated} of {head_dim} elements of a head")
    return TransformerConfig(
        family="llama",
        layers=_size(values, "block_count"),
        hidden=hidden,
        ffn=_size(values, "feed_forward_length"),
        heads=heads,
        kv_heads=_size(values, "attention.head_count_kv", heads),
        head_dim=head_dim,
        vocabulary=_size(values, "vocab_size"),
        max_positions=_size(values, "context_length"),
        rope_theta=_number(values, "rope.freq_base", 10000.0),
        norm_eps=_number(values, "attention.layer_norm_rms_epsilon", 1e-5),
        tied_embeddings=tied_embeddings,
        qk_norm=False,
    )


_FIXED: Final[Mapping[str, tuple[Any, ...]]] = {
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "hidden_act": (None, "silu"),
    "use_sliding_window": (None, False),
    "quantization_config": (None,),
}
"""Keys of config.json that may only have these values."""
_MAX_NUMBER: Final = 1e30


def _refuse(config: Mapping[str, Any]) -> None:
    for key, allowed in _FIXED.items():
        if config.get(key) not in allowed:
            raise UnsupportedModel(f"{key} is {shown(config[key])}", f"only {allowed[-1]!r} is built")
    kind = _rope(config).get("rope_type", _rope(config).get("type", "default"))
    if kind != "default":
        raise UnsupportedModel(f"rope scaling of type {shown(kind)} is asked for", "only unscaled rope is built")


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rope settings, from the older top-level keys or the newer `rope_parameters`."""
    settings = {key: config[key] for key in ("rope_theta",) if key in config}
    for key in ("rope_scaling", "rope_parameters"):
        more = config.get(key)
        if not isinstance(more, Mapping | None):
            raise UnsupportedModel(f"{key} in the model's config is {shown(more)}, not an object")
        settings |= more or {}
    return settings


def _size(values: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A whole number from 1 up; null is as good as left out."""
    value = values.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool):
        raise UnsupportedModel(f"{key} in the model's config is {shown(value)}, not a whole number")
    if value < 1:
        raise UnsupportedModel(f"{key} in the model's config is {shown(value)}, below 1")
    return value


def _number(values: Mapping[str, Any], key: str, default: float) -> float:
    value = values.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < _MAX_NUMBER:
        raise UnsupportedModel(f"{key} in the model's config is {shown(value)}, not a number above 0")
    return float(value)


def _flag(values: Mapping[str, Any], key: str) -> bool:
    value = values.get(key, False)
    if not isinstance(value, bool):
        raise UnsupportedModel(f"{key} in the model's config is {shown(value)}, neither true nor false")
    return value


def _within(name: str, size: int, most: int) -> None:
    if not 1 <= size <= most:
        raise UnsupportedModel(f"{name} is {shown(size)}", f"1 to {most} can be built")


def shown(value: object) -> str:
    """A value as a message can show it: the start of a long one."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


_QWEN3 = TransformerConfig(
    family="qwen3",
    layers=28,
    hidden=1024,
    ffn=3072,
    heads=16,
    kv_heads=8,
    head_dim=128,
    vocabulary=151936,
    max_positions=40960,
    rope_theta=1e6,
    norm_eps=1e-6,
    tied_embeddings=True,
    qk_norm=True,
)
_TINY = replace(
    _QWEN3,
    layers=2,
    hidden=128,
    ffn=256,
    heads=4,
    kv_heads=2,
    head_dim=64,
    vocabulary=512,
    max_positions=4096,
    tied_embeddings=False,
)

PRESETS: Final[Mapping[Family, Mapping[str, TransformerConfig]]] = {
    "llama": {"tiny": replace(_TINY, family="llama", kv_heads=1, tied_embeddings=True, qk_norm=False)},
    "qwen3": {
        "qwen3-0.6b": _QWEN3,
        "qwen3-1.7b": replace(_QWEN3, hidden=2048, ffn=6144),
        "qwen3-4b": replace(_QWEN3, layers=36, hidden=2560, ffn=9728, heads=32),
        "qwen3-8b": replace(_QWEN3, layers=36, hidden=4096, ffn=12288, heads=32, tied_embeddings=False),
        "tiny": _TINY,
    },
}
"""Known shapes by family and name, for building with random weights."""


def preset(family: Family, name: str) -> TransformerConfig:
    """The known shape `name`. Raises UnsupportedModel where the family has none of that name."""
    known = PRESETS[family]
    if name not in known:
        raise UnsupportedModel(f"{family} has no config {name!r}", f"known: {', '.join(known)}")
    return known[name]
