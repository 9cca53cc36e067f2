"""Decoding driven by the host, step by step: slow and plain, the oracle for what runs ahead on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kern.contracts.text import round_calls
from kern.engine import Generator
from kern.engine.choices import NO_TOKEN, chosen
from kern.engine.speculation import BEGIN


def generator(executable: Any, tokenizer: Any, *, host: bool = False, **options: Any) -> Generator:
    """A generator, driven by the host where that is asked for."""
    return (HostDriven if host else Generator)(executable, tokenizer, **options)


class HostDriven(Generator):
    """A generator that reads what each step chose, and each program of a round drafted and predicted, before the next.

    Where it speculates, it compares drafts and predictions itself, and fails where the device goes on from another
    token or position.
    """

    def _ids(self, token: int, position: int, steps: int, accepted: list[int]) -> Iterator[int]:
        end = position + steps
        if self.spec:
            self.sequence.write_inputs([token], position)
            self.sequence.run(BEGIN)
            while position < end and position + self.rows <= self.capacity:
                self._assert_at(token, position)
                ids = self._round()
                accepted.append(len(ids) - 1)
                for token in ids[: end - position]:
                    yield chosen(token, "verify", position)
                    position += 1
        while position < end:
            self.sequence.write_inputs([token], position)
            if "begin" in self.executable.manifest.programs:
                self.sequence.run(("begin", 1))
            self.sequence.run(("decode", 1))
            token = chosen(int(self.executable.read("next_token")[0]), "decode", position)
            yield token
            position += 1

    def _round(self) -> list[int]:
        """The drafts that are right, then the target's own choice."""
        draft, verify, accept, precompute = round_calls(self.rows)
        self.sequence.run(draft)
        drafts = self.executable.read("round_tokens")[1 : self.rows]
        self.sequence.run(verify)
        predicted = self.executable.read("predicted")[: self.rows]
        self.sequence.run(accept)
        self.sequence.run(precompute)
        count = agreement(drafts, predicted)
        return [*map(int, drafts[:count]), int(predicted[count])]

    def _assert_at(self, token: int, position: int) -> None:
        found = int(self.executable.read("slot_token")[0]), int(self.executable.read("slot_position")[0])
        assert found == (token, position), f"the device's round begins with {found}, not {(token, position)}"


def agreement(drafts: NDArray[np.int64], predicted: NDArray[np.int64]) -> int:
    """How many of the drafts, from the first, are what the target predicts there, [n] and [n + 1] ids.

    No draft agrees with a prediction of NO_TOKEN.
    """
    there = predicted[: len(drafts)]
    wrong = np.flatnonzero((drafts != there) | (there == NO_TOKEN))
    return int(wrong[0]) if len(wrong) else len(drafts)
