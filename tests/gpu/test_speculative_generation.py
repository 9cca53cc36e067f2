"""Speculation on a GPU: rounds launched ahead, judged by the host or launched one by one do the same arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kern.bench.rounds import benchmark_rounds
from kern.building.build import build
from kern.building.options import BuildOptions
from kern.engine import Generation, Generator
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from kern.text import Tokenizer
from support import host_driven
from support.agreement import agreement, run
from support.host_driven import HostDriven
from support.rounds import assert_between_rounds
from support.tiny import SEED, prompt, tiny_reference

if TYPE_CHECKING:
    from kern.device.cuda.device import CudaDevice

pytestmark = pytest.mark.gpu

COUNT = 100
WAYS: list[dict[str, Any]] = [
    {"spec": True},
    {"spec": True, "eager": True},
    {"spec": True, "host": True},
]


@pytest.fixture(scope="module")
def drafted_folder(gpu: CudaDevice, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A family → a tiny random model's folder with a random draft, called by its family."""

    @cache
    def folder(family: str) -> Path:
        path = tmp_path_factory.mktemp("drafted") / family
        build(BuildOptions(family, random=True, seed=SEED, config="tiny", target="auto", draft="random"), path)
        return path

    return folder


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def drafted(request: pytest.FixtureRequest, drafted_folder: Callable[[str], Path]) -> Path:
    """The folder of each family in turn."""
    return drafted_folder(request.param)


def generate(executable: Executable, folder: Path, ids: list[int], **options: Any) -> Generation:
    generator = host_driven.generator(executable, Tokenizer.load(folder), chunk=32, **options)
    generation = generator.generate(ids, max_tokens=COUNT, ignore_stop=True)
    list(generation)
    return generation


@pytest.mark.parametrize("length", [1, 16, 45])
def test_every_way_of_driving_gives_the_same_rounds(drafted: Path, length: int) -> None:
    ids = prompt(length, seed=length)
    with load(drafted, capacity=length + 2 * COUNT) as executable:
        first, *others = [generate(executable, drafted, ids, **way) for way in WAYS]
        again = generate(executable, drafted, ids, spec=True)

    for other in (*others, again):
        assert (other.output_ids, other.accepted) == (first.output_ids, first.accepted)


@pytest.mark.parametrize("length", [1, 16, 45])
def test_speculation_parts_from_plain_decoding_only_at_a_near_tie(drafted: Path, length: int) -> None:
    ids, reference = prompt(length, seed=length), tiny_reference(drafted).logits
    with load(drafted, capacity=length + 2 * COUNT) as executable:
        found = generate(executable, drafted, ids, spec=True).output_ids
    error = agreement(run(drafted, ids, COUNT, chunk=32), reference).error
    rows = reference([*ids, *found])[length - 1 : -1]
    margins = rows.max(axis=1) - rows[np.arange(COUNT), found]
    print(f"{drafted.name}, {length} tokens: margin {margins.max():.4f} at most, logits off by {error:.4f}")

    # The chosen logit may be low by as much as the best one is high.
    assert margins.max() <= 2 * error


def test_after_each_round_the_gpu_is_where_the_text_is(drafted: Path) -> None:
    ids = prompt(13)
    with load(drafted, capacity=128) as executable:
        text = ids + generate(executable, drafted, ids, spec=True).output_ids
        generator = HostDriven(executable, Tokenizer.load(drafted), chunk=32, spec=True)
        generation = generator.generate(ids, max_tokens=40, ignore_stop=True)
        rounds = 0
        for _ in generation:
            if rounds < len(generation.accepted):
                rounds = len(generation.accepted)
                anchor = len(ids) - 1 + sum(generation.accepted) + rounds
                assert_between_rounds(executable, text, anchor, generation.accepted)
    assert rounds > 0


@pytest.mark.parametrize("room", [7, 8, 9, 30])
def test_plain_steps_finish_where_no_round_has_room(drafted: Path, room: int) -> None:
    ids = prompt(20)
    with load(drafted, capacity=len(ids) - 1 + room) as executable:
        device, host = (generate(executable, drafted, ids, spec=True, host=host) for host in (False, True))

    assert len(device.output_ids) == room
    assert device.capacity_full
    assert (device.output_ids, device.accepted) == (host.output_ids, host.accepted)
    assert bool(device.accepted) is (room >= 8)


def test_rounds_are_timed_beside_the_time_between_them(drafted: Path) -> None:
    with load(drafted, capacity=1024) as executable:
        found = benchmark_rounds(Generator(executable, Tokenizer.load(drafted), spec=True), 32)

    print(f"{drafted.name}: {found}")
    assert found.rounds == 32
    assert found.idle_us_per_round is not None
