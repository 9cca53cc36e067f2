"""Decoding driven by the host, step by step: slow and plain, the oracle for what runs ahead on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kern.contracts.text import round_calls
from kern.engine import Generator
from kern.engine.calls import Rows
from kern.engine.choices import NO_TOKEN
from kern.engine.schedule import Chosen, Member, Schedule
from kern.engine.speculation import BEGIN


def generator(executable: Any, tokenizer: Any, *, host: bool = False, **options: Any) -> Generator:
    """A generator, driven by the host where that is asked for."""
    return (HostDriven if host else Generator)(executable, tokenizer, **options)


class HostDriven(Generator):
    """A generator that reads what each step chose, and each program of a round drafted and predicted, before the next.

    Where it speculates, it compares drafts and predictions itself, and fails where the device goes on from another
    token or position.
    """

    def tokens(self, schedule: Schedule, accepted: list[int]) -> Iterator[Chosen]:
        (member,) = schedule.waiting
        if self.mixed and not self.spec:
            yield self._first(member)
        else:
            self.fill(member.ids[:-1], member.computed)
        if self.spec:
            self.sequence.write_inputs(member.ids[-1:], len(member.ids) - 1)
            self.sequence.run(BEGIN)
            while len(member.ids) < member.end and len(member.ids) - 1 + self.rows <= self.capacity:
                self._assert_at(member.ids[-1], len(member.ids) - 1)
                ids = self._round()
                accepted.append(len(ids) - 1)
                for id in ids[: member.end - len(member.ids)]:
                    yield member.next(id, "verify")
                    if member.over:
                        return
        while len(member.ids) < member.end and not member.over:
            self.sequence.write_inputs(member.ids[-1:], len(member.ids) - 1)
            if self.calls.ahead:
                self.sequence.run(("begin", 1))
            self.sequence.run(("decode", 1))
            yield member.next(int(self.executable.read("next_token")[0]), "decode")

    def _first(self, member: Member) -> Chosen:
        """The token after a prompt, in the same chunks as those of a schedule."""
        for start in range(member.computed, len(member.ids), self._chunk):
            rows = Rows(member.ids[start : start + self._chunk], start, self.sequence.pages, chosen=True)
            last = rows.end == len(member.ids)
            self.calls.run_rows("step" if last else "prefill", [rows])
        return member.next(int(self.executable.read("next_token")[0]), "step")

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
