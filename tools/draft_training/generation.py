"""The target completes prompts, many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from draft_training.corpus import Text
from draft_training.target import Target

_LOOK_EVERY: Final = 32
"""Steps between two checks whether every sequence has ended: each check makes the host wait for the device."""


@dataclass(frozen=True)
class Request:
    """A prompt to complete: given `ids`, then `sampled` more drawn by the target itself at temperature 1.

    The completion is drawn at `temperature`; 0 is greedy.
    """

    kind: str
    ids: tuple[int, ...]
    temperature: float
    sampled: int = 0

    @property
    def prompt(self) -> int:
        """Tokens before the completion."""
        return len(self.ids) + self.sampled


def complete(target: Target, requests: Sequence[Request], most: int, stop_ids: Sequence[int], seed: int) -> list[Text]:
    """Completions of at most `most` tokens, up to and with a stop token.

    All sequences go through the same positions, so that a prompt token takes a step too: no padding is needed, and the
    cost is that of the longest sequence.
    """
    prompts = torch.tensor([request.prompt for request in requests])
    capacity = int(prompts.max()) + most
    tokens = torch.zeros(len(requests), capacity, dtype=torch.int64)
    for row, request in zip(tokens, requests, strict=True):
        row[: len(request.ids)] = torch.tensor(request.ids)
    drawn = _Drawing(target, requests, stop_ids, seed)
    tokens, prompts = tokens.to(target.device), prompts.to(target.device)
    stepper, stops = (
        target.stepper(len(requests), capacity),
        torch.tensor(list(stop_ids), dtype=torch.int64, device=target.device),
    )
    ended = torch.zeros(len(requests), dtype=torch.bool, device=target.device)
    for place in range(1, capacity):
        logits = stepper.step(tokens[:, place - 1])
        tokens[:, place] = torch.where(drawn.given > place, tokens[:, place], drawn.next(logits, place))
        ended |= (place >= prompts) & torch.isin(tokens[:, place], stops) | (place + 1 >= prompts + most)
        if place % _LOOK_EVERY == 0 and bool(ended.all()):
            break
    return [_cut(request, row, most, stop_ids) for request, row in zip(requests, tokens.tolist(), strict=True)]


class _Drawing:
    """Draws the next token of every sequence, each at its temperature."""

    def __init__(self, target: Target, requests: Sequence[Request], stop_ids: Sequence[int], seed: int) -> None:
        self.given = torch.tensor([len(request.ids) for request in requests], device=target.device)
        self._prompts = torch.tensor([request.prompt for request in requests], device=target.device)
        self._temperatures = torch.tensor([request.temperature for request in requests], device=target.device)
        self._stop_ids = torch.tensor(list(stop_ids), dtype=torch.int64, device=target.device)
        self._random = torch.Generator(target.device).manual_seed(seed)

    def next(self, logits: Tensor, place: int) -> Tensor:
        """i64 [batch]: argmax(logits + T · Gumbel noise) follows softmax(logits / T), and is the argmax at T = 0."""
        inside = place < self._prompts
        # A prompt that the target writes itself holds no stop token.
        logits[:, self._stop_ids] = logits[:, self._stop_ids].masked_fill(inside[:, None], -torch.inf)
        temperatures = torch.where(inside, 1.0, self._temperatures)
        noise = torch.empty_like(logits).exponential_(generator=self._random).clamp_min_(1e-20).log_().neg_()
        return (logits + temperatures[:, None] * noise).argmax(dim=-1)


def _cut(request: Request, row: list[int], most: int, stop_ids: Sequence[int]) -> Text:
    end = request.prompt + most
    for place in range(request.prompt, end):
        if row[place] in stop_ids:
            return Text(request.kind, tuple(row[: place + 1]), request.prompt, True)
    return Text(request.kind, tuple(row[:end]), request.prompt, False)
