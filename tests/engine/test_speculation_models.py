"""Tiny models with random drafts on the host device: speculation changes no token in any mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.engine import Generation, Generator
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from kern.text import Tokenizer
from support import host_driven
from support.greedy import assert_greedy, assert_same
from support.rounds import assert_between_rounds
from support.tiny import SEED, prompt, tiny_reference

COUNT = 40


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def drafted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> Path:
    """A tiny random model's folder, with a random draft in it."""
    folder = tmp_path_factory.mktemp("drafted") / str(request.param)
    build(BuildOptions(request.param, random=True, seed=SEED, config="tiny", target="host", draft="random"), folder)
    return folder


def generate(executable: Executable, folder: Path, ids: list[int], **options: Any) -> Generation:
    generator = host_driven.generator(executable, Tokenizer.load(folder), **options)
    generation = generator.generate(ids, max_tokens=COUNT)
    list(generation)
    return generation


@pytest.mark.parametrize("length", [1, 9, 16, 45])
def test_every_way_of_driving_gives_the_same_tokens(drafted: Path, length: int) -> None:
    ids = prompt(length, seed=length)
    with load(drafted, capacity=128) as executable:
        plain = generate(executable, drafted, ids)
        device = generate(executable, drafted, ids, spec=True)
        others = [
            generate(executable, drafted, ids, spec=True, eager=True),
            generate(executable, drafted, ids, spec=True, host=True),
        ]

    assert_greedy(tiny_reference(drafted), ids, device.output_ids)
    assert_same(tiny_reference(drafted), ids, plain.output_ids, device.output_ids)
    for other in others:
        assert (other.output_ids, other.accepted) == (device.output_ids, device.accepted)
    assert sum(device.accepted) + len(device.accepted) >= COUNT


def test_the_capacity_ends_it_like_plain_decoding(drafted: Path) -> None:
    ids = prompt(20)
    for capacity in range(26, 44):
        with load(drafted, capacity=capacity) as executable:
            plain = generate(executable, drafted, ids)
            device = generate(executable, drafted, ids, spec=True)

        assert_same(tiny_reference(drafted), ids, plain.output_ids, device.output_ids)
        assert device.stop == plain.stop == "length"
        assert bool(device.accepted) is (capacity >= 19 + 8)


def test_after_each_round_the_device_is_where_the_text_is(drafted: Path) -> None:
    ids = prompt(13)
    with load(drafted, capacity=64) as executable:
        text = ids + generate(executable, drafted, ids, spec=True, host=True).output_ids
        generation = Generator(executable, Tokenizer.load(drafted), spec=True).generate(ids, max_tokens=COUNT)
        rounds = 0
        for _ in generation:
            if rounds < len(generation.accepted):
                rounds = len(generation.accepted)
                anchor = len(ids) - 1 + sum(generation.accepted) + rounds
                if anchor < len(text):
                    assert_between_rounds(executable, text, anchor, generation.accepted)
    assert rounds > 0
