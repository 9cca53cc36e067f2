"""Any split of sequences into calls gives each what float32 says of it alone, and changes the state of no other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kern.checkpoints.config import Family, preset
from kern.contracts.text import PAGE
from kern.runtime.loading import load
from support.batch import Batch, Text, assert_as_alone
from support.tiny import prompt, tiny_reference

PAGES = 5
WITHIN = 0.03
CALLS = 60


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


@pytest.mark.parametrize("seed", range(5))
def test_any_split_into_calls_gives_each_sequence_what_it_has_alone(tiny: Path, seed: int) -> None:
    family: Family = "llama" if tiny.name == "llama" else "qwen3"
    with load(tiny, capacity=PAGES * PAGE, sequences=8) as executable:
        batch = Batch(executable, PAGES, watched=preset(family, "tiny"))
        plan = Plan(batch, np.random.default_rng(seed))
        texts = plan.run(CALLS)

    assert plan.called == {"prefill", "begin", "decode", "step"}
    assert len(texts) > 8
    assert any(len(text.chosen) > 8 for text in texts)
    for text in texts:
        label = f"{tiny.name}, seed {seed}, {len(text.prompt)} tokens"
        assert_as_alone(text, tiny_reference(tiny).logits, within=WITHIN, label=label)
