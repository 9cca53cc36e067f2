"""Tiny models on a GPU: every way of running does the same arithmetic, and gives the reference's tokens."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kern.engine import Generator, score
from kern.models.buffers import RING
from kern.runtime.loading import load
from kern.text import Tokenizer
from support import host_driven
from support.agreement import Run, assert_agrees, assert_near, run
from support.tiny import prompt, tiny_reference

pytestmark = pytest.mark.gpu

PROMPT = prompt(45)
COUNT = RING + 20
WITHIN = 0.03
"""Of a row of logits: what storing activations in bf16, by 2⁻⁹ of a value each time, adds up to over two layers."""


@cache
def usual(folder: Path) -> Run:
    """The run that the others are compared with: graphs, fed by the host."""
    return run(folder, PROMPT, COUNT, chunk=32)


@pytest.mark.parametrize("length", [1, 2, 16, 17, 70, 513])
def test_the_reference_would_choose_the_same_tokens(tiny: Path, length: int) -> None:
    found = run(tiny, prompt(length, seed=length), 24)

    assert_agrees(found, tiny_reference(tiny).logits, within=WITHIN, label=f"{tiny.name}, {length} tokens")


@pytest.mark.parametrize("options", [{"eager": True}, {"check": True}, {"check": True, "eager": True}])
def test_graphs_and_single_launches_do_the_same_arithmetic(tiny: Path, options: dict[str, Any]) -> None:
    assert run(tiny, PROMPT, COUNT, chunk=32, **options).same(usual(tiny))


@pytest.mark.parametrize("again", [1, 2])
def test_every_load_does_the_same_arithmetic(tiny: Path, again: int) -> None:
    assert run(tiny, PROMPT, COUNT, chunk=32).same(usual(tiny))


@pytest.mark.parametrize("capacity", [4096, len(PROMPT) + COUNT - 1])
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("check", [False, True])
def test_tokens_that_stay_on_the_gpu_are_those_that_pass_the_host(
    tiny: Path, capacity: int, eager: bool, check: bool
) -> None:
    with load(tiny, capacity=capacity, sharing=False, check=check) as executable:
        generator = Generator(executable, Tokenizer.load(tiny), chunk=32, eager=eager)
        generation = generator.generate(PROMPT, max_tokens=COUNT)
        ids = [token.id for token in generation]
        last = executable.read("logits", {"seqs": 1})[0]
        position = executable.read("slot_position").tolist()

    assert ids == list(usual(tiny).ids)
    assert last.tobytes() == usual(tiny).logits[-1].tobytes()
    assert position == [len(PROMPT) + COUNT - 1]


@pytest.mark.parametrize("host", [False, True])
def test_generation_ends_where_the_capacity_ends(tiny: Path, host: bool) -> None:
    with load(tiny, capacity=53) as executable:
        generator = host_driven.generator(executable, Tokenizer.load(tiny), chunk=32, host=host)
        generation = generator.generate(PROMPT, max_tokens=60)
        ids = [token.id for token in generation]
        position = executable.read("slot_position").tolist()

    assert generation.stop == "length"
    assert ids == list(usual(tiny).ids)[:9]
    assert position == [53]


@cache
def chunked(folder: Path, chunk: int) -> Run:
    return run(folder, prompt(600), 24, chunk=chunk)


@pytest.mark.parametrize("chunk", [1, 7, 64, 512])
def test_the_chunk_of_the_prefill_does_not_matter(tiny: Path, chunk: int) -> None:
    reference, found = tiny_reference(tiny).logits, chunked(tiny, chunk)

    assert_agrees(found, reference, within=WITHIN, label=f"{tiny.name}, chunk {chunk}")
    assert_near(chunked(tiny, 512), found, reference, f"{tiny.name}, chunk {chunk}")


def test_an_executable_generates_repeatedly(tiny: Path) -> None:
    with load(tiny, capacity=256) as executable:
        generator = Generator(executable, Tokenizer.load(tiny), chunk=32)
        for _ in range(3):
            generation = generator.generate(PROMPT, max_tokens=COUNT)
            assert [token.id for token in generation] == list(usual(tiny).ids)
            next(generator.generate(prompt(100, seed=5)))  # and steps launched in vain


@pytest.mark.parametrize("length", [2, 65, 150])
def test_the_score_is_the_references(tiny: Path, length: int) -> None:
    ids = prompt(length, seed=length)
    with load(tiny, capacity=149) as executable:
        result = score(executable, Tokenizer.load(tiny).settings, ids)

    assert result.nll == pytest.approx(tiny_reference(tiny).nll(ids), abs=0.02)


def test_logits_can_be_told_apart(tiny: Path) -> None:
    # What the comparisons above rest on: other ids give other logits.
    assert not np.array_equal(usual(tiny).logits[0], usual(tiny).logits[1])
    assert not run(tiny, PROMPT[1:], COUNT, chunk=32).same(usual(tiny))
