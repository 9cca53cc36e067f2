"""What training minimises: which tokens anchor a block, and how far its logits are from the target's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

CROSS_ENTROPY_SHARE: Final = 0.1
"""The rest is the L1 distance of the distributions, as published."""
DECAY: Final = 4.0
"""A label's weight is exp(-place / 4): a later draft counts only where all before it are accepted."""


@dataclass(frozen=True)
class Anchors:
    """Where blocks begin, `positions` i64 [batch, anchors], and which labels exist, `valid` bool [..., block]."""

    positions: Tensor
    valid: Tensor

    def labels(self, ids: Tensor) -> Tensor:
        """i64 [batch, anchors, block]: the tokens after each anchor; arbitrary where there are none."""
        places = self.positions[..., None] + 1 + torch.arange(self.valid.shape[-1], device=ids.device)
        return _taken(ids, places.clamp_max(ids.shape[1] - 1))

    def previous(self, ids: Tensor) -> Tensor:
        """i64 [batch, anchors, block]: the true token before each label; the anchor itself before the first."""
        places = self.positions[..., None] + torch.arange(self.valid.shape[-1], device=ids.device)
        return _taken(ids, places.clamp_max(ids.shape[1] - 1))


def choose_anchors(prompts: Tensor, lengths: Tensor, count: int, block: int, random: torch.Generator) -> Anchors:
    """`count` different anchors of each text, uniform over the tokens that a completion's token follows.

    The prompt's last token is one of them, since decoding begins there. A text with fewer has anchors without labels.
    `prompts` and `lengths` are i64 [batch] on the generator's device.
    """
    places = torch.arange(int(lengths.max()), device=lengths.device)
    usable = (places >= prompts[:, None] - 1) & (places <= lengths[:, None] - 2)
    order = torch.rand(usable.shape, generator=random, device=lengths.device).masked_fill(~usable, -1.0)
    chosen = order.topk(min(count, order.shape[1]), dim=1)
    positions = chosen.indices.masked_fill(chosen.values < 0, 0)
    ends = positions[..., None] + 1 + torch.arange(block, device=lengths.device)
    valid = (chosen.values >= 0)[..., None] & (ends < lengths[:, None, None])
    return Anchors(positions, valid)


@dataclass(frozen=True)
class Distance:
    """`loss`: the weighted mean to minimise. `overlap` f32 [labels]: 1 - L1 / 2, how often a draft passes at T = 1."""

    loss: Tensor
    overlap: Tensor


def distance(drafted: Tensor, wanted: Tensor, labels: Tensor, places: Tensor, cross_entropy: float) -> Distance:
    """share · CE(label) + (1 - share) · L1(softmax, softmax), weighted by place.

    `drafted` and `wanted` are logits f32 [labels, vocabulary], the draft's with its Markov bias, and the target's;
    `labels` and `places` (0 for the first of a block) i64 [labels].
    """
    log_drafted = drafted.log_softmax(dim=-1)
    entropy = -log_drafted.gather(1, labels[:, None])[:, 0]
    apart = (log_drafted.exp() - wanted.softmax(dim=-1)).abs().sum(dim=-1)
    weights = torch.exp(-places / DECAY)
    terms = cross_entropy * entropy + (1 - cross_entropy) * apart
    return Distance((weights * terms).sum() / weights.sum(), (1 - apart.detach() / 2).clamp_min(0))


def _taken(ids: Tensor, places: Tensor) -> Tensor:
    return ids.gather(1, places.flatten(1)).view(places.shape)
