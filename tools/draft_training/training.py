"""The training loop: online features, fresh anchors each step, a learning rate that ends at 0 in time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from draft_training.corpus import Text, padded
from draft_training.draft import Draft
from draft_training.objective import CROSS_ENTROPY_SHARE, Distance, choose_anchors, distance
from draft_training.target import Target

WARM_UP: Final = 0.04
"""The share of training in which the learning rate rises."""
ENTROPY_FIRST: Final = 0.1
"""The share of training with the cross entropy alone: from random logits the L1 distance has almost no gradient."""
_LONGEST_CLIP: Final = 1.0
_TELLINGS: Final = 20


@dataclass(frozen=True)
class Schedule:
    """How long and how fast: `steps` of `batch` texts with `anchors` blocks each, at most `seconds`."""

    steps: int
    batch: int
    anchors: int
    learning_rate: float
    seconds: float
    seed: int

    def progress(self, step: int, elapsed: float) -> float:
        """0 … 1, by steps or by time, whichever is further: the run ends annealed even on a slow device."""
        return min(1.0, max(step / self.steps, elapsed / self.seconds))

    def rate(self, progress: float) -> float:
        """Linear warm-up, then a cosine to 0."""
        if progress < WARM_UP:
            return self.learning_rate * max(progress, 1 / self.steps) / WARM_UP
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP)))


@dataclass(frozen=True)
class Step:
    """A step as it is reported: `overlap` is the mean of 1 - L1 / 2 by position in the block."""

    number: int
    progress: float
    seconds: float
    loss: float
    overlap: tuple[float, ...]


@dataclass(frozen=True)
class Batch:
    """Texts on the device: `ids` i64 [batch, longest]; `prompts` and `lengths` i64 [batch]."""

    ids: torch.Tensor
    prompts: torch.Tensor
    lengths: torch.Tensor


def batch_of(texts: Sequence[Text], device: torch.device) -> Batch:
    """Texts padded to the longest of them."""
    prompts = torch.tensor([text.prompt for text in texts], device=device)
    lengths = torch.tensor([len(text.ids) for text in texts], device=device)
    return Batch(torch.from_numpy(padded(texts)).to(device), prompts, lengths)


def train(target: Target, draft: Draft, texts: Sequence[Text], schedule: Schedule, tell: Callable[[Step], None]) -> int:
    """Train the draft in place; the steps done. A text goes through training with teacher forcing."""
    parameters = list(draft.tensors.values())
    optimizer = torch.optim.AdamW(parameters, lr=schedule.learning_rate, weight_decay=0.0)
    order = np.random.default_rng(schedule.seed)
    random = torch.Generator(target.device).manual_seed(schedule.seed)
    begin, step = time.monotonic(), 0
    while (progress := schedule.progress(step, time.monotonic() - begin)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate(progress)
        chosen = order.choice(len(texts), size=min(schedule.batch, len(texts)), replace=False)
        batch = batch_of([texts[place] for place in chosen], target.device)
        found, places = objective(
            target, draft, batch, schedule.anchors, random, 1.0 if progress < ENTROPY_FIRST else CROSS_ENTROPY_SHARE
        )
        optimizer.zero_grad(set_to_none=True)
        found.loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(parameters, _LONGEST_CLIP)
        optimizer.step()
        step += 1
        if step % max(1, schedule.steps // _TELLINGS) == 0 or step == 1:
            overlap = _by_place(found.overlap, places, draft.config.block)
            tell(Step(step, progress, time.monotonic() - begin, found.loss.item(), overlap))
    return step


def objective(
    target: Target, draft: Draft, batch: Batch, anchors: int, random: torch.Generator, cross_entropy: float
) -> tuple[Distance, torch.Tensor]:
    """The distance over fresh blocks of a batch, and the place in its block of each of its labels, i64 [labels]."""
    block = draft.config.block
    chosen = choose_anchors(batch.prompts, batch.lengths, anchors, block, random)
    traced = target.trace(batch.ids, draft.config.taps)
    context = draft.context(traced.features)
    anchor_ids = batch.ids.gather(1, chosen.positions)
    hidden = draft.hidden(chosen.positions, anchor_ids, context, target.embedding)
    row, anchor, place = chosen.valid.nonzero(as_tuple=True)
    drafted = target.head(hidden[row, anchor, place]) + draft.bias(chosen.previous(batch.ids)[row, anchor, place])
    with torch.no_grad():
        wanted = target.head(traced.hidden[row, chosen.positions[row, anchor] + place])
    labels = chosen.labels(batch.ids)[row, anchor, place]
    return distance(drafted, wanted, labels, place, cross_entropy), place


def _by_place(overlap: torch.Tensor, places: torch.Tensor, block: int) -> tuple[float, ...]:
    return tuple(float(overlap[places == place].mean()) for place in range(block))
