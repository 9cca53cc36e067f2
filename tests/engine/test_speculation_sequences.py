"""Rounds of several sequences at once on the host device: each gives what it gives alone.

Exactly, where the margins of its tokens are wide, and where a round has up to 32 rows: each then has the bits that it
has alone. In products of more rows sums are in another order, and a near-tie may fall otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.engine.rounds import NoRoom
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from models.test_speculation_rounds import made
from support.greedy import assert_same
from support.many_rounds import Spoken, Together, alone
from support.reference import Reference
from support.tiny import SEED, prompt, tiny_reference

COUNT = 40
CAPACITY = 96
SEQUENCES = 8
EXACT = 4
"""The sequences of rounds of 32 rows."""


LENGTHS = [1, 2, 9, 15, 16, 17, 31, 33, 40, 5]


@pytest.fixture(scope="module", params=["llama", "qwen3", "oracle"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> Path:
    """A tiny random model with a random draft, or one whose rounds accept every number of drafts."""
    kind, to = request.param, tmp_path_factory.mktemp("together")
    if kind == "oracle":
        return oracle_of(to, "host")
    options = BuildOptions(
        kind, random=True, seed=SEED, config="tiny", target="host", draft="random", sequences=SEQUENCES
    )
    build(options, to / kind)
    return to / kind


def oracle_of(to: Path, target: str) -> Path:
    """The folder of an oracle, and next to its files the path on which it accepts every number of drafts."""
    oracle = made(to, target, sequences=SEQUENCES)
    oracle.pair.executable.close()
    (to / "built" / "path").write_text(" ".join(map(str, oracle.text([oracle.first], len(LENGTHS)))))
    return to / "built"


@pytest.fixture(scope="module")
def executable(folder: Path) -> Iterator[Executable]:
    with load(folder, capacity=CAPACITY, sequences=SEQUENCES) as found:
        yield found


@pytest.fixture(scope="module")
def references(folder: Path) -> list[Spoken]:
    return references_of(folder)


def references_of(folder: Path) -> list[Spoken]:
    """Texts of many lengths, each spoken by itself; with the oracle each ends in another token of its path."""
    prompts = [prompt(length, seed=length) for length in LENGTHS]
    if (folder / "path").exists():
        for each, last in zip(prompts, (folder / "path").read_text().split(), strict=False):
            each[-1] = int(last)
    found = alone(folder, prompts, COUNT, CAPACITY)
    if (folder / "path").exists():
        assert {count for text in found for count in text.accepted} == set(range(8))
    return found


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


def check_same(text: Spoken, reference: Spoken, random: Reference | None) -> None:
    """A text is as the reference, as far as both go; the last round of the reference may be cut.

    `random`: of a model whose near-ties may fall otherwise.
    """
    assert text.prompt == reference.prompt
    ids, rounds = min(len(text.ids), COUNT), min(len(text.accepted), len(reference.accepted)) - 1
    if random is not None:
        assert_same(random, text.prompt, text.ids[:ids], reference.ids[:ids])
    else:
        assert (text.ids[:ids], text.accepted[:rounds]) == (reference.ids[:ids], reference.accepted[:rounds])


def random_model(folder: Path) -> Reference | None:
    """The reference of a random model; None for an oracle."""
    return None if (folder / "path").exists() else tiny_reference(folder)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("seqs", [1, 2, 3, 5, 8])
def test_each_sequence_gives_what_it_gives_alone(
    folder: Path, executable: Executable, references: list[Spoken], rng: np.random.Generator, seqs: int, eager: bool
) -> None:
    random = random_model(folder) if seqs > EXACT else None
    check_alike(Together(folder, executable, rng, eager=eager), references, rng, seqs, random)


def check_alike(
    together: Together, references: list[Spoken], rng: np.random.Generator, seqs: int, random: Reference | None = None
) -> None:
    slots = rng.permutation(SEQUENCES)[:seqs].tolist()
    of = dict(zip(slots, rng.permutation(len(references))[:seqs].tolist(), strict=True))
    together.join({slot: references[index].prompt for slot, index in of.items()})
    while going := [slot for slot in slots if len(together.texts[slot].ids) < COUNT]:
        together.round(rng.permutation(going).tolist(), int(rng.integers(1, 3)))

    for slot, index in of.items():
        check_same(together.texts[slot], references[index], random)


def test_sequences_come_and_go_between_rounds(
    folder: Path, executable: Executable, references: list[Spoken], rng: np.random.Generator
) -> None:
    check_coming_and_going(Together(folder, executable, rng), references, rng, random_model(folder))


def check_coming_and_going(
    together: Together, references: list[Spoken], rng: np.random.Generator, random: Reference | None = None
) -> None:
    waiting, done = list(range(len(references))) * 2, 0
    of: dict[int, int] = {}
    while waiting or of:
        free = [slot for slot in range(SEQUENCES) if slot not in of]
        joining = dict(zip(free, waiting[: rng.integers(0, 4)], strict=False))
        waiting = waiting[len(joining) :]
        if joining:
            together.join({slot: references[index].prompt for slot, index in joining.items()})
            of |= joining
        if of:
            together.round(rng.permutation(list(of))[: rng.integers(1, len(of) + 1)].tolist())
        for slot in [slot for slot in of if len(together.texts[slot].ids) >= COUNT]:
            check_same(together.texts[slot], references[of.pop(slot)], random)
            done += 1
    assert done == 2 * len(references)


def test_a_round_writes_the_pages_of_its_sequences_alone(
    folder: Path, executable: Executable, references: list[Spoken], rng: np.random.Generator
) -> None:
    check_pages(Together(folder, executable, rng), references, rng)


def check_pages(together: Together, references: list[Spoken], rng: np.random.Generator) -> None:
    for state in ("kv", "draft_kv"):
        together.executable.clear(state)
    together.join({slot: references[slot].prompt for slot in range(SEQUENCES)})
    for round in range(6):
        slots = rng.permutation(SEQUENCES)[: rng.integers(1, SEQUENCES)].tolist()
        before = {state: together.state(state) for state in ("kv", "draft_kv")}
        together.round(slots)
        for state, was in before.items():
            changed = together.pages_changed(was, state)
            assert changed <= {int(page) for slot in slots for page in together.tables[slot]}
            if round == 0:
                assert all(changed & {int(page) for page in together.tables[slot]} for slot in slots)


def test_rounds_fit_up_to_the_last_position_and_no_further(
    folder: Path, executable: Executable, references: list[Spoken], rng: np.random.Generator
) -> None:
    together, prompts = Together(folder, executable, rng), {0: prompt(CAPACITY - 20), 1: [3]}
    together.join(prompts)
    while together.fits(0):
        together.round([1, 0] if together.fits(1) else [0])
    written = len(prompts[0]) + len(together.texts[0].ids)
    assert CAPACITY - 8 < written - 1 <= CAPACITY
    assert together.texts[0].ids == alone(folder, [prompts[0]], len(together.texts[0].ids), CAPACITY)[0].ids
    for slots, rounds in (([0], 1), ([1, 0], 1), ([1], 9)):
        before = together.state("kv")
        with pytest.raises(NoRoom):
            together.round(slots, rounds)
        assert together.state("kv") == before
