"""Sequences that speculate at once on an executable, and what each of them gives alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kern.contracts.text import PAGE
from kern.contracts.text_checks import check_speculation
from kern.engine.rounds import Rounds
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from kern.text import Tokenizer
from support import host_driven


@dataclass
class Spoken:
    """What a sequence gave: ids, and the drafts that each round accepted."""

    prompt: list[int]
    ids: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)


class Together:
    """Sequences by their slots, whose pages lie anywhere in the pool."""

    def __init__(self, folder: Path, executable: Executable, rng: np.random.Generator, *, eager: bool = False) -> None:
        settings, self.executable = Tokenizer.load(folder).settings, executable
        rows, capacity = check_speculation(executable.manifest, settings), executable.capacity
        self.rounds, self._pages = Rounds(executable, rows, capacity, eager=eager), -(-capacity // PAGE)
        pool = rng.permutation(executable.sequences * self._pages)
        self.tables = pool.reshape(executable.sequences, -1).astype(np.int32)
        self.texts: dict[int, Spoken] = {}

    def join(self, prompts: Mapping[int, Sequence[int]]) -> None:
        """Begin texts in slots, in place of what was there."""
        for slot, prompt in prompts.items():
            self.texts[slot] = Spoken(list(prompt))
            self._prefill(slot, prompt[:-1])
        self.rounds.begin({slot: (prompt[-1], len(prompt) - 1) for slot, prompt in prompts.items()})

    def round(self, slots: Sequence[int], rounds: int = 1) -> None:
        """Rounds of these slots, which are the rows in this order."""
        found = self.rounds.run({slot: self.tables[slot].tolist() for slot in slots}, rounds)
        assert list(found) == list(slots)
        for slot, given in found.items():
            for ids in given:
                self.texts[slot].ids += ids
                self.texts[slot].accepted.append(len(ids) - 1)

    def fits(self, slot: int, rounds: int = 1) -> bool:
        return self.rounds.fits(slot, self._pages, rounds)

    def pages_changed(self, before: bytes, state: str) -> set[int]:
        """Pages of a state that are not as they were in `before`."""
        was, now = (
            np.frombuffer(octets, np.uint8).reshape(len(self.tables) * self._pages, -1)
            for octets in (before, self.state(state))
        )
        return set(np.flatnonzero((was != now).any(axis=1)).tolist())

    def state(self, name: str) -> bytes:
        return np.asarray(self.executable.read_state(name)).tobytes()

    def _prefill(self, slot: int, ids: Sequence[int]) -> None:
        if not ids:
            return
        positions, table = np.arange(len(ids)), self.tables[slot]
        values = {"tokens": len(ids), "seqs": 1, "pages": self._pages}
        for name, given in (
            ("token_ids", np.array(ids)),
            ("positions", positions),
            ("slot_mapping", table[positions // PAGE].astype(np.int64) * PAGE + positions % PAGE),
            ("block_table", table.reshape(1, -1)),
            ("seq_lens", np.array([len(ids)], np.int32)),
            ("cu_seqlens_q", np.array([0, len(ids)], np.int32)),
        ):
            self.executable.write(name, given, values)
        self.executable.run("prefill", values)


def alone(folder: Path, prompts: Sequence[Sequence[int]], count: int, capacity: int) -> list[Spoken]:
    """What each prompt gives by itself, driven by the host: `count` ids."""
    found = []
    with load(folder, capacity=capacity) as executable:
        generator = host_driven.generator(executable, Tokenizer.load(folder), spec=True, host=True)
        for prompt in prompts:
            generation = generator.generate(prompt, max_tokens=count, ignore_stop=True)
            list(generation)
            found.append(Spoken(list(prompt), generation.output_ids, generation.accepted))
    return found
