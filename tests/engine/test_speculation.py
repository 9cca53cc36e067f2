"""Speculation with a target whose exact draft is known: every number of accepted drafts at every boundary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kern.contracts.text import PAGE, ContractError
from kern.engine import Generation, Generator
from kern.engine.calls import Superseded
from kern.engine.speculation import Disagreement
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from kern.text import Tokenizer
from support import host_driven
from support.late import Slow
from support.rounds import assert_between_rounds
from support.toy_speculation import (
    CHUNK,
    POSITIONS,
    RING,
    ROWS,
    VOCABULARY,
    Sizes,
    continuation,
    settings,
    spoiling,
    write_toy,
)

DISTINCT = [16, 5, 2]
"""A prompt after which the first 24 tokens all differ."""

WAYS = [
    {"spec": True},
    {"spec": True, "eager": True},
    {"spec": True, "late": True},
    {"spec": True, "host": True},
]


def prompt_of(length: int) -> list[int]:
    return [(7 * index + 3) % 97 for index in range(length)]


def generate(
    executable: Executable,
    prompt: Sequence[int],
    count: int,
    *,
    stop_ids: Sequence[int] = (),
    positions: int = POSITIONS,
    late: bool = False,
    **options: Any,
) -> Generation:
    """One complete generation."""
    driven: Any = Slow(executable, asynchronous=True) if late else executable
    generator = host_driven.generator(driven, Tokenizer(settings(stop_ids, positions), None), **options)
    generation = generator.generate(prompt, max_tokens=count)
    list(generation)
    return generation


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executable]:
    """The draft is always right."""
    with load(write_toy(tmp_path_factory.mktemp("oracle") / "toy"), capacity=POSITIONS) as executable:
        yield executable


@pytest.fixture(scope="module")
def adversary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executable]:
    """The draft is always wrong."""
    folder = write_toy(tmp_path_factory.mktemp("adversary") / "toy", range(POSITIONS))
    with load(folder, capacity=POSITIONS) as executable:
        yield executable


@pytest.fixture(params=["oracle", "adversary"])
def extreme(request: pytest.FixtureRequest) -> Executable:
    """Each of the two in turn."""
    executable: Executable = request.getfixturevalue(request.param)
    return executable


def accepts_by_turns(length: int) -> list[int]:
    """An order of acceptances that contains each number, and the extremes in succession."""
    turns = [7, 0, 6, 1, 5, 2, 4, 3, 7, 7, 0, 0]
    return turns[length % 12 :] + turns[: length % 12]


@pytest.mark.parametrize("accepted", range(ROWS))
def test_each_number_of_accepted_drafts_repeatedly(tmp_path: Path, accepted: int) -> None:
    accepts = [accepted] * 12
    count = sum(accepts) + len(accepts)
    with load(write_toy(tmp_path / "toy", spoiling(5, accepts)), capacity=128) as executable:
        plain = generate(executable, prompt_of(5), count)
        assert plain.output_ids == continuation(prompt_of(5), count)
        assert plain.accepted == []
        for way in WAYS:
            found = generate(executable, prompt_of(5), count, **way)
            assert (found.accepted, found.output_ids) == (accepts, plain.output_ids), way


@pytest.mark.parametrize("length", [1, 2, PAGE - ROWS, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, RING, RING + 1])
def test_acceptance_changes_at_the_edges_of_pages(tmp_path: Path, length: int) -> None:
    accepts = accepts_by_turns(length)
    count = sum(accepts) + len(accepts)
    with load(write_toy(tmp_path / "toy", spoiling(length, accepts)), capacity=256) as executable:
        for way in WAYS:
            found = generate(executable, prompt_of(length), count, **way)
            assert found.accepted == accepts, way
            assert found.output_ids == continuation(prompt_of(length), count), way


@hypothesis_settings(max_examples=40, deadline=None)
@given(
    length=st.integers(1, 70),
    accepts=st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=16),
    chunk=st.integers(1, CHUNK),
    cut=st.integers(0, ROWS - 1),
    way=st.sampled_from(WAYS),
)
def test_any_rounds_after_any_prompt(
    tmp_path_factory: pytest.TempPathFactory,
    length: int,
    accepts: list[int],
    chunk: int,
    cut: int,
    way: dict[str, Any],
) -> None:
    count = sum(accepts) + len(accepts) - min(cut, accepts[-1])
    folder = write_toy(tmp_path_factory.mktemp("any") / "toy", spoiling(length, accepts))
    with load(folder, capacity=256) as executable:
        found = generate(executable, prompt_of(length), count, chunk=chunk, **way)

    assert found.accepted == accepts
    assert found.output_ids == continuation(prompt_of(length), count)


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("chunk", [1, 19, 20, 21])
def test_every_chunk_of_the_prefill_feeds_the_draft(oracle: Executable, chunk: int, host: bool) -> None:
    for state in ("kv", "draft_kv"):
        oracle.clear(state)
    for length in (1, 20, 21, 22):
        found = generate(oracle, prompt_of(length), 40, spec=True, host=host, chunk=chunk)

        assert found.accepted == [7] * 5
        assert found.output_ids == continuation(prompt_of(length), 40)


@pytest.mark.parametrize("way", WAYS)
def test_a_limit_may_end_inside_a_round(oracle: Executable, way: dict[str, Any]) -> None:
    for count in range(1, 2 * ROWS + 2):
        found = generate(oracle, DISTINCT, count, **way)

        assert found.output_ids == continuation(DISTINCT, count)
        assert found.stop == "length"
        assert len(found.accepted) == -(-count // ROWS)


@pytest.mark.parametrize("way", WAYS)
def test_a_stop_token_ends_the_text_at_any_position(
    oracle: Executable, extreme: Executable, way: dict[str, Any]
) -> None:
    follows = continuation(DISTINCT, 24)
    for index in range(2 * ROWS + 1):
        found = generate(extreme, DISTINCT, 24, stop_ids=[follows[index]], **way)

        assert found.stop == "stop_token"
        assert found.output_ids == follows[: index + 1]
        assert len(found.accepted) == (index // ROWS + 1 if extreme is oracle else index + 1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("length", [1, PAGE - 3, 40])
def test_plain_steps_finish_where_no_round_has_room(
    oracle: Executable, extreme: Executable, length: int, way: dict[str, Any]
) -> None:
    for room in range(1, 2 * ROWS + 3):
        found = generate(extreme, prompt_of(length), 1000, positions=length - 1 + room, **way)

        assert found.output_ids == continuation(prompt_of(length), room)
        assert found.capacity_full
        # A round needs as many positions as it has rows.
        assert len(found.accepted) == (room // ROWS if extreme is oracle else max(0, room - ROWS + 1))


@pytest.mark.parametrize("capacity", range(18, 36))
def test_the_states_may_end_anywhere_in_a_page(tmp_path: Path, capacity: int) -> None:
    with load(write_toy(tmp_path / "toy"), capacity=capacity) as executable:
        for way in WAYS:
            found = generate(executable, prompt_of(3), 1000, **way)
            assert found.output_ids == continuation(prompt_of(3), capacity - 2)
            assert found.accepted == [7] * ((capacity - 2) // ROWS)


@pytest.mark.parametrize("host", [False, True])
def test_after_each_round_the_device_is_where_the_text_is(tmp_path: Path, host: bool) -> None:
    prompt, accepts = prompt_of(13), [3, 0, 7, 7, 1, 0, 5, 2, *[6, 0] * 12, *[0] * 40]
    text = prompt + continuation(prompt, 300)
    folder = write_toy(tmp_path / "toy", spoiling(len(prompt), accepts))
    with load(folder, capacity=256) as executable:
        generator = host_driven.generator(executable, Tokenizer(settings(), None), spec=True, host=host)
        generation = generator.generate(prompt, max_tokens=sum(accepts) + len(accepts))
        rounds = 0
        for _ in generation:
            if rounds < len(generation.accepted):
                rounds = len(generation.accepted)
                anchor = len(prompt) - 1 + sum(generation.accepted) + rounds
                assert_between_rounds(executable, text, anchor, generation.accepted)
    assert generation.accepted == accepts


@pytest.mark.parametrize("ring", [2 * ROWS, 3 * ROWS, 30, RING])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("accepted", [0, ROWS - 1])
def test_a_late_device_runs_ahead_no_further_than_the_ring_holds(
    tmp_path: Path, ring: int, asynchronous: bool, accepted: int
) -> None:
    folder = write_toy(tmp_path / "toy", range(512 if accepted == 0 else 0), Sizes(ring=ring))
    rounds, prompt = 20, prompt_of(6)
    apart = 2 if asynchronous and ring // ROWS > 2 else 1
    with load(folder, capacity=len(prompt) - 1 + rounds * ROWS) as executable:
        slow: Any = Slow(executable, asynchronous=asynchronous)
        generator = Generator(slow, Tokenizer(settings(), None), spec=True)
        generation = generator.generate(prompt, max_tokens=rounds * (accepted + 1))
        list(generation)
        launched = int(executable.read("round_count")[0])

    assert generation.output_ids == continuation(prompt, rounds * (accepted + 1))
    assert generation.accepted == [accepted] * rounds
    assert launched == rounds  # none beyond what is wanted or fits
    assert slow.under_way == 0
    assert slow.most_under_way == 2 * ((ring // ROWS - 1) // apart)  # two buffers per read


def test_wasted_rounds_do_not_change_the_next_text(oracle: Executable) -> None:
    slow: Any = Slow(oracle, asynchronous=True)
    generator = Generator(slow, Tokenizer(settings(), None), spec=True)
    list(islice(generator.generate(DISTINCT, max_tokens=200), 3))

    assert slow.under_way > 0
    again = generator.generate(prompt_of(30), max_tokens=60)
    assert [token.id for token in again] == continuation(prompt_of(30), 60)
    assert again.accepted == [7] * 8


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_a_generation_that_lost_its_state_is_an_error(oracle: Executable, host: bool, late: bool) -> None:
    driven: Any = Slow(oracle) if late else oracle
    generator = host_driven.generator(driven, Tokenizer(settings(), None), spec=True, host=host)
    first = generator.generate(DISTINCT)
    next(first)
    next(generator.generate(prompt_of(9)))

    with pytest.raises(Superseded):
        next(first)


@pytest.mark.parametrize("mistake", [-1, 1])
def test_the_oracle_sees_that_the_device_accepts_another_number(tmp_path: Path, mistake: int) -> None:
    folder = write_toy(tmp_path / "toy", spoiling(3, [3, 3, 3]), Sizes(mistake=mistake))

    with load(folder, capacity=64) as executable, pytest.raises(AssertionError, match=rf", {6 + mistake}\), not .*6\)"):
        generate(executable, prompt_of(3), 40, spec=True, host=True)


class Misreading:
    """An executable whose reads of carry `name` return `value`, except in the first `right` elements."""

    def __init__(self, executable: Executable, name: str, value: int, right: int = 0) -> None:
        self._executable, self._name, self._value, self._right = executable, name, value, right

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executable, name)

    def read_async(self, name: str) -> Any:
        found = self._executable.read_async(name).wait().copy()
        if name == self._name:
            found[0, self._right :] = self._value
        return SimpleNamespace(done=lambda: True, wait=lambda: found)


@pytest.mark.parametrize("accepted", [-(2**31), -2, -1, ROWS, 2**31 - 1])
def test_an_impossible_count_is_an_error(oracle: Executable, accepted: int) -> None:
    driven: Any = Misreading(oracle, "accepted", accepted, right=2)
    generation = Generator(driven, Tokenizer(settings(), None), spec=True).generate(DISTINCT, max_tokens=100)

    with pytest.raises(Disagreement, match=f"that a round of 7 drafts accepted {accepted} of them"):
        list(generation)
    assert generation.output_ids == continuation(DISTINCT, 2 * ROWS)


@pytest.mark.parametrize("spec", [False, True])
@pytest.mark.parametrize("id", [-(2**63), -2, VOCABULARY, 2**63 - 1])
def test_an_id_outside_the_vocabulary_is_an_error(oracle: Executable, id: int, spec: bool) -> None:
    driven: Any = Misreading(oracle, "token_ring", id)
    generation = Generator(driven, Tokenizer(settings(), None), spec=spec).generate(DISTINCT)

    with pytest.raises(ContractError, match=f"the token id {id}; ids are 0…96"):
        next(generation)
    assert generation.output_ids == []


def test_a_round_is_one_graph(oracle: Executable) -> None:
    tokenizer = Tokenizer(settings(), None)

    assert Generator(oracle, tokenizer, spec=True).graphs == (("prefill", 64), ("decode", 1), ("round", 8))
    assert Generator(oracle, tokenizer, spec=True, eager=True).graphs == ()
