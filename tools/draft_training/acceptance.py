"""The number of tokens per round of speculation on texts that the target completed greedily."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from draft_training.corpus import Text
from draft_training.draft import Draft
from draft_training.target import Target

_ROWS: Final = 2048
"""Rows of logits at once: 0.4 GB with 49,152 entries each."""


@dataclass(frozen=True)
class Acceptance:
    """Rounds by how many drafts were accepted, `counts`[m] for m = 0 … block."""

    counts: tuple[int, ...]

    @property
    def rounds(self) -> int:
        """All rounds."""
        return sum(self.counts)

    @property
    def tau(self) -> float:
        """Mean tokens per round, including the target's own; 0 without a round."""
        tokens = sum((accepted + 1) * count for accepted, count in enumerate(self.counts))
        return tokens / self.rounds if self.rounds else 0.0

    @property
    def by_place(self) -> tuple[float, ...]:
        """The share of rounds that accept draft k among those that accept all before it, k = 1 … block."""
        reached = [sum(self.counts[place:]) for place in range(len(self.counts))]
        return tuple(after / before if before else 0.0 for before, after in pairwise(reached))

    def __add__(self, other: Acceptance) -> Acceptance:
        return Acceptance(tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)))


def measure(target: Target, draft: Draft, texts: Sequence[Text]) -> dict[str, Acceptance]:
    """Rounds of greedy speculation along greedy completions, by kind of text.

    Greedy verification accepts a draft exactly if it is the token of the plain completion, so the completion decides
    every round, and all blocks can be drafted in one pass. A round whose block would exceed the text's end is left out,
    since what would follow is not known.
    """
    found: dict[str, Acceptance] = {}
    for text in texts:
        accepted = accepted_along(target, draft, text)
        kind = found.get(text.kind, Acceptance((0,) * (draft.config.block + 1)))
        found[text.kind] = kind + walk(accepted, draft.config.block)
    return found


@torch.no_grad()
def accepted_along(target: Target, draft: Draft, text: Text) -> NDArray[np.int64]:
    """i64 [anchors]: how many drafts of a block are right, from the prompt's last token on.

    A completion that is shorter than a block's drafts has no anchor.
    """
    block, device = draft.config.block, target.device
    first, end = text.prompt - 1, len(text.ids) - block
    if end <= first:
        return np.zeros(0, dtype=np.int64)
    ids, anchors = torch.tensor(text.ids, device=device), torch.arange(first, end, device=device)
    context = draft.context(target.trace(ids[None], draft.config.taps).features)
    hidden = draft.hidden(anchors[None], ids[anchors][None], context, target.embedding)[0]
    right = []
    for rows, start in zip(hidden.split(max(1, _ROWS // block)), anchors.split(max(1, _ROWS // block)), strict=True):
        drafts = draft.chain(target.head(rows), ids[start])
        right.append(drafts == ids[start[:, None] + 1 + torch.arange(block, device=device)])
    return torch.cat(right).to(torch.int64).cumprod(dim=1).sum(dim=1).cpu().numpy()


def walk(accepted: NDArray[np.int64], block: int) -> Acceptance:
    """The rounds of decoding: each begins at the last token of the one before."""
    counts, place = [0] * (block + 1), 0
    while place < len(accepted):
        counts[accepted[place]] += 1
        place += int(accepted[place]) + 1
    return Acceptance(tuple(counts))
