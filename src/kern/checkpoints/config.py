"""What a transformer is made of: its sizes, its parameters by their Hugging Face names, and presets of known models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from kern.checkpoints.rope import Llama3, RopeScaling, Yarn
from kern.manifest.errors import KernError

Shape = tuple[int, ...]
Family = Literal["llama", "qwen3"]
FAMILIES: Final[tuple[Family, ...]] = ("llama", "qwen3")

MAX_LAYERS: Final = 1024
MAX_POSITIONS: Final = 2**20
MAX_WIDTH: Final = 2**24
"""Bounds well beyond every known model, so that a damaged config is refused quickly."""


class UnsupportedModel(KernError, code="unsupported-model", help="correct the config, or give another checkpoint"):
    """The config asks for something that kern does not build."""


@dataclass(frozen=True, slots=True)
class TransformerConfig:
    """A decoder-only transformer with RMS norms, rotary positions, grouped heads and a gated MLP.

    Sizes are in elements. `qk_norm`: q and k heads are normalised before the rotation.
    `tied_embeddings`: the output projection is the embedding table. `rope_scaling`: None for plain rotary positions.
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
    rope_scaling: RopeScaling | None = None

    @property
    def q_size(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads, and of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def qkv_size(self) -> int:
        """Width of a merged row of queries, keys and values."""
        return self.q_size + 2 * self.kv_size

    def __post_init__(self) -> None:
        """Raises UnsupportedModel for sizes that are out of bounds or inconsistent."""
        bounds = {"layers": MAX_LAYERS, "max_positions": MAX_POSITIONS}
        for name in ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocabulary", "max_positions"):
            _within(name, getattr(self, name), bounds.get(name, MAX_WIDTH))
        _within("the width of queries, keys and values", self.qkv_size, MAX_WIDTH)
        if self.heads % self.kv_heads:
            raise UnsupportedModel(f"{self.heads} query heads are not a multiple of {self.kv_heads} key heads")
        if self.head_dim % 2:
            raise UnsupportedModel(f"head_dim {self.head_dim} is odd; rotary embedding needs an even size")
        self._check_rope()

    def _check_rope(self) -> None:
        divisors, curve = (self.rope_scaling.divisors, self.rope_scaling.curve) if self.rope_scaling else ((), None)
        if divisors and len(divisors) != self.head_dim // 2:
            raise UnsupportedModel(f"there are {len(divisors)} factors for {self.head_dim // 2} rotary frequencies")
        if isinstance(curve, Yarn | Llama3):
            _within("the number of original positions", curve.positions, MAX_POSITIONS)
        if not isinstance(curve, Yarn):
            return
        start, end = curve.ramp(self.head_dim, self.rope_theta) if self.rope_theta > 1 else (1, 0)
        if end < start:  # transformers and llama.cpp read such settings differently
            raise UnsupportedModel(
                f"yarn with {curve.positions} original positions, theta {self.rope_theta:g} and heads of "
                f"{self.head_dim} scales no frequency in between",
                "check original_max_position_embeddings, beta_fast and beta_slow",
            )


def _within(name: str, size: int, most: int) -> None:
    if not 1 <= size <= most:
        raise UnsupportedModel(f"{name} is {shown(size)}", f"1 to {most} can be built")


def shown(value: object) -> str:
    """A value for a message; a long one is truncated."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def layer_parameters(config: TransformerConfig, layer: int) -> dict[str, Shape]:
    """Names and shapes of one decoder layer's parameters, matrices as [outputs, inputs]."""
    c = config
    shapes: dict[str, Shape] = {
        "input_layernorm": (c.hidden,),
        "self_attn.q_proj": (c.q_size, c.hidden),
        "self_attn.k_proj": (c.kv_size, c.hidden),
        "self_attn.v_proj": (c.kv_size, c.hidden),
        "self_attn.o_proj": (c.hidden, c.q_size),
        "post_attention_layernorm": (c.hidden,),
        "mlp.gate_proj": (c.ffn, c.hidden),
        "mlp.up_proj": (c.ffn, c.hidden),
        "mlp.down_proj": (c.hidden, c.ffn),
    }
    if c.qk_norm:
        shapes |= {"self_attn.q_norm": (c.head_dim,), "self_attn.k_norm": (c.head_dim,)}
    return {f"model.layers.{layer}.{name}.weight": shape for name, shape in shapes.items()}


def parameter_shapes(config: TransformerConfig) -> dict[str, Shape]:
    """Names and shapes of all parameters that a checkpoint of this config holds."""
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": (config.vocabulary, config.hidden)}
    for layer in range(config.layers):
        shapes |= layer_parameters(config, layer)
    shapes["model.norm.weight"] = (config.hidden,)
    if not config.tied_embeddings:
        shapes["lm_head.weight"] = (config.vocabulary, config.hidden)
    return shapes


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
    """The known shape `name`. Raises UnsupportedModel for an unknown name."""
    known = PRESETS[family]
    if name not in known:
        raise UnsupportedModel(f"unknown config {name!r} for {family}", f"known: {', '.join(known)}")
    return known[name]
