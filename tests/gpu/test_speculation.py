"""A draft's programs on a GPU: every intermediate compared with the reference, and rounds with an oracle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine import test_speculation_sequences as sequences
from kern.building.build import build
from kern.building.options import BuildOptions
from kern.runtime.loading import load
from models import test_speculation_parity as parity
from models import test_speculation_rounds as rounds
from support.greedy import assert_greedy
from support.many_rounds import Together
from support.tiny import SEED, prompt, tiny_reference

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", parity.CASES)
def test_every_intermediate_is_the_references(tmp_path: Path, architecture: str, case: str) -> None:
    pair = parity.made(tmp_path, parity.CASES[case], architecture)
    for length in parity.CONTEXTS:
        parity.check_intermediates(pair, length)
    pair.executable.close()


def test_rounds_leave_the_state_that_a_prefill_of_their_tokens_would(tmp_path: Path, architecture: str) -> None:
    pair = parity.made(tmp_path, parity.CASES["of its target's family"], architecture)
    parity.check_rounds(pair)
    pair.executable.close()


def test_rounds_of_every_length_against_an_oracle(tmp_path: Path, architecture: str) -> None:
    oracle = rounds.made(tmp_path, architecture)
    for length in (0, 1, 15, 16, 29):
        rounds.check_rounds(oracle, length)
    rounds.check_capacity(oracle)
    rounds.check_graph(oracle)
    oracle.pair.executable.close()


def test_several_sequences_at_once_give_what_each_gives_alone(tmp_path: Path, architecture: str) -> None:
    rng, folder = np.random.default_rng(), sequences.oracle_of(tmp_path, architecture)
    references = sequences.references_of(folder)
    with load(folder, capacity=sequences.CAPACITY, sequences=sequences.SEQUENCES) as executable:
        for seqs in (1, 2, 3, 8):
            for eager in (False, True):
                sequences.check_alike(Together(folder, executable, rng, eager=eager), references, rng, seqs)
        sequences.check_coming_and_going(Together(folder, executable, rng), references, rng)
        sequences.check_pages(Together(folder, executable, rng), references, rng)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_several_sequences_of_a_random_model_are_greedy(tmp_path: Path, architecture: str, family: str) -> None:
    rng, folder = np.random.default_rng(), tmp_path / family
    options = {"random": True, "seed": SEED, "config": "tiny", "draft": "random", "sequences": 8}
    build(BuildOptions(family, target=architecture, **options), folder)
    prompts = {slot: prompt(length, seed=length) for slot, length in enumerate([1, 9, 16, 45, 3, 30, 31, 2])}
    with load(folder, capacity=128, sequences=8) as executable:
        together = Together(folder, executable, rng)
        together.join(prompts)
        for _ in range(30):
            together.round(rng.permutation(8)[: rng.integers(1, 9)].tolist())
        for slot, ids in prompts.items():
            assert_greedy(tiny_reference(folder), ids, together.texts[slot].ids)
