"""The config of a DSpark draft: read, compared with its target, or made for random weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kern.checkpoints.config import MAX_LAYERS, MAX_WIDTH, TransformerConfig, UnsupportedModel, shown
from kern.checkpoints.fields import Table, irrelevant, obeyed, refused
from kern.checkpoints.hf_config import from_hugging_face
from kern.checkpoints.hf_fields import HF_FIELDS
from kern.models.buffers import RING

MAX_BLOCK: Final = RING // 2 - 1
"""The most drafts per round: the ring of tokens holds those of two rounds."""
BLOCK: Final = 7
"""Drafts per round of the published models."""
_FFN_STEP: Final = 8
"""An MLP uses the target's workspaces, whose rows kernels read 16 bytes at a time."""
_QWEN3_VOCABULARY: Final = 151936
_QWEN3_MASK: Final = 151669
"""The first row of Qwen3's table that no token uses."""
_GEOMETRY: Final = ("hidden", "heads", "kv_heads", "head_dim", "vocabulary")


DRAFT_FIELDS: Final[Table] = {
    **HF_FIELDS,
    "architectures": irrelevant("`num_anchors` marks the layout"),
    "auto_map": irrelevant("the code that trained it"),
    "tie_word_embeddings": obeyed("refused where the head would be the draft's own embedding"),
    "eos_token_id": irrelevant("the target's are used"),
    "num_anchors": obeyed("marks the layout in which the anchor's row predicts the first draft"),
    "block_size": obeyed("drafts per round"),
    "target_layer_ids": obeyed("the layers of the target whose outputs are read"),
    "num_target_layers": obeyed("refused where the target has a different number"),
    "mask_token_id": obeyed("the id of a token to be drafted"),
    "markov_rank": obeyed(),
    "markov_head_type": refused("", "vanilla"),
    "enable_confidence_head": irrelevant("estimates how certain the draft is; the target decides"),
    "loss_decay_gamma": irrelevant("training"),
}
"""The fields of a draft's config.json, and what is done with each: a transformer's, and its own."""


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """A draft model: decoder layers over the block of a round, and over features of the target.

    `transformer` describes its layers; `block` is the drafts per round; `taps` are the target's layers, 0-based and
    ascending, whose outputs are its features; `mask` is the id of a token to be drafted; `rank` is the width of the
    Markov head, a product of two tables that adds to a row's logits what follows from the token before it.
    `target_layers` is how many layers its target has, None where the config does not say.
    """

    transformer: TransformerConfig
    block: int
    taps: tuple[int, ...]
    mask: int
    rank: int
    target_layers: int | None = None

    @property
    def rows(self) -> int:
        """Rows of a round: the anchor and its drafts."""
        return self.block + 1


def from_dspark(config: Mapping[str, Any]) -> DraftConfig:
    """Read a DSpark checkpoint's config.json. Raises UnsupportedModel, naming the key that is not supported.

    `num_anchors` marks the layout in which the anchor's row predicts the first draft; without it the rows differ.
    """
    if "num_anchors" not in config:
        raise UnsupportedModel(
            "the draft's config has no num_anchors, so its blocks do not begin with the anchor",
            "give a DSpark checkpoint as published",
        )
    transformer = replace(_layers(config), tied_embeddings=False)
    return DraftConfig(
        transformer=transformer,
        block=_integer(config, "block_size", 1, MAX_BLOCK),
        taps=_taps(config.get("target_layer_ids")),
        mask=_integer(config, "mask_token_id", 0, transformer.vocabulary - 1),
        rank=_integer(config, "markov_rank", 1, MAX_WIDTH),
        target_layers=_integer(config, "num_target_layers", 1, MAX_LAYERS) if "num_target_layers" in config else None,
    )


def _layers(config: Mapping[str, Any]) -> TransformerConfig:
    try:
        return from_hugging_face(config, DRAFT_FIELDS)
    except UnsupportedModel as error:
        raise UnsupportedModel(f"in the draft: {error.message}", error.help) from None


def fitted(draft: DraftConfig, target: TransformerConfig, *, before: bool = False) -> DraftConfig:
    """The draft for this target, with as many positions. `before`: its taps are one layer earlier.

    Raises UnsupportedModel for a size that has to be the target's and is not, and for a layer that cannot be tapped.
    """
    for name in _GEOMETRY:
        ours, theirs = getattr(draft.transformer, name), getattr(target, name)
        if ours != theirs:
            raise UnsupportedModel(
                f"the draft's {name} is {ours}, the target's {theirs}", "give a draft that was trained for this target"
            )
    ffn = draft.transformer.ffn
    if ffn > target.ffn or ffn % _FFN_STEP:
        raise UnsupportedModel(
            f"the draft's ffn is {ffn}, the target's {target.ffn}",
            f"it has to be at most the target's, and a multiple of {_FFN_STEP}",
        )
    if draft.target_layers not in (None, target.layers):
        raise UnsupportedModel(
            f"the draft's target has {draft.target_layers} layers, this one {target.layers}",
            "give a draft that was trained for this target",
        )
    taps = tuple(tap - before for tap in draft.taps)
    for tap in taps:
        if tap == target.layers - 1:
            raise UnsupportedModel(
                f"the draft taps layer {tap}, the target's last", "only layers before the last can be tapped"
            )
        if not 0 <= tap < target.layers:
            raise UnsupportedModel(
                f"the draft taps layer {tap}, the target has layers 0 to {target.layers - 1}",
                "leave --taps-before out" if tap < 0 and before else "give a draft that was trained for this target",
            )
    return replace(draft, transformer=replace(draft.transformer, max_positions=target.max_positions), taps=taps)


def random_draft(target: TransformerConfig) -> DraftConfig:
    """The shape of a random draft for a target: as published for a hidden size of 1024 or more, else of two layers."""
    published = target.hidden >= 1024
    qwen3 = target.vocabulary == _QWEN3_VOCABULARY
    return DraftConfig(
        transformer=replace(target, layers=5 if published else 2, tied_embeddings=False),
        block=BLOCK,
        taps=_spread(target.layers, 5 if published else 3),
        mask=_QWEN3_MASK if qwen3 else target.vocabulary - 1,
        rank=256 if published else 64,
        target_layers=target.layers,
    )


def _spread(layers: int, count: int) -> tuple[int, ...]:
    """`count` layers, evenly from 1 to the third from last, as the published drafts; one layer of a shallow model."""
    last = layers - 3
    if last < count:
        return (max(0, layers // 2 - 1),)
    return tuple(round(1 + (last - 1) * i / (count - 1)) for i in range(count))


def _taps(ids: Any) -> tuple[int, ...]:
    if not isinstance(ids, Sequence) or isinstance(ids, str) or not ids or not all(type(id) is int for id in ids):
        raise UnsupportedModel(
            f"target_layer_ids in the draft's config is {shown(ids)}", "give a list of layer numbers"
        )
    if list(ids) != sorted(set(ids)):
        raise UnsupportedModel(
            f"target_layer_ids in the draft's config is {shown(ids)}", "list each layer once, in ascending order"
        )
    return tuple(ids)


def _integer(config: Mapping[str, Any], key: str, low: int, high: int) -> int:
    value = config.get(key)
    if type(value) is not int or not low <= value <= high:
        raise UnsupportedModel(
            f"{key} in the draft's config is {shown(value)}", f"it has to be an integer from {low} to {high}"
        )
    return value
