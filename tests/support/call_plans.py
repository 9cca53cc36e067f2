"""Random plans of calls for several sequences: what a serving loop might do, and what it would hardly ever do."""

from __future__ import annotations

import numpy as np

from kern.contracts.text import PAGE
from support.batch import Batch, Text
from support.tiny import prompt

PAGES = 5
"""The pages that a sequence may have."""


class Plan:
    """Random calls: texts join, are computed in pieces, alone or with others, decode in any order, and leave."""

    def __init__(self, batch: Batch, rng: np.random.Generator) -> None:
        self.batch, self.rng = batch, rng
        self.slots = list(rng.permutation(batch.slots).tolist())
        self.free = list(rng.permutation(batch.slots * PAGES).tolist())
        self.texts: list[Text] = []
        self.left: list[Text] = []
        self.called: set[str] = set()

    def run(self, calls: int) -> list[Text]:
        for _ in range(calls):
            self.join()
            getattr(self, str(self.rng.choice(["prefill", "begin", "decode", "decode", "step", "step", "leave"])))()
        return [text for text in (*self.left, *self.texts) if text.chosen]

    def join(self) -> None:
        if not self.slots or self.rng.random() < 0.3:
            return
        length = int(self.rng.integers(1, (PAGES - 2) * PAGE))
        pages = [self.free.pop() for _ in range(int(self.rng.integers(-(-(length + 8) // PAGE), PAGES + 1)))]
        self.texts.append(Text(prompt(length, int(self.rng.integers(1 << 30))), self.slots.pop(), pages))

    def leave(self) -> None:
        for text in [text for text in self.texts if not self.room(text) or self.rng.random() < 0.2]:
            self.texts.remove(text)
            self.left.append(text)
            self.slots.append(text.slot)
            self.free += text.pages
            self.rng.shuffle(self.free)

    def some(self, texts: list[Text]) -> list[Text]:
        """Some of these, in any order."""
        count = int(self.rng.integers(1, len(texts) + 1)) if texts else 0
        return [texts[at] for at in self.rng.permutation(len(texts))[:count]]

    def room(self, text: Text) -> bool:
        return text.done < len(text.pages) * PAGE

    def waiting(self, text: Text) -> bool:
        return text.held and text.done == len(text.ids) - 1 and self.room(text)

    def prefill(self) -> None:
        texts = self.some([text for text in self.texts if text.done < len(text.prompt) - 1])
        if texts:
            self.batch.ragged("prefill", [(t, int(self.rng.integers(1, len(t.prompt) - t.done))) for t in texts])
            self.called.add("prefill")

    def begin(self) -> None:
        texts = self.some([text for text in self.texts if not text.held and text.done == len(text.ids) - 1])
        if texts:
            self.batch.begin(texts)
            self.called.add("begin")

    def decode(self) -> None:
        for _ in range(int(self.rng.integers(1, 4))):
            texts = self.some([text for text in self.texts if self.waiting(text)])
            if not texts:
                return
            rows = [*texts, *[None] * int(self.rng.integers(0, self.batch.slots - len(texts) + 1))]
            self.batch.decode([rows[at] for at in self.rng.permutation(len(rows))])
            self.called.add("decode")

    def step(self) -> None:
        texts = self.some([text for text in self.texts if text.done < len(text.ids) and self.room(text)])
        if texts:
            self.batch.ragged("step", [(t, int(self.rng.integers(1, len(t.ids) - t.done + 1))) for t in texts])
            self.called.add("step")
