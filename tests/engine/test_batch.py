"""Several prompts at once on tiny models: each gives what it gives alone, whatever the others do."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.contracts.text import PAGE
from kern.engine import Batch, Generation, Generator
from kern.engine.calls import Superseded
from kern.engine.choices import UnusableLogits
from kern.engine.schedule import Plan, pages_of
from kern.engine.sequence import PromptError
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from kern.text import Tokenizer
from kern.text.tokenizer import NoTokenizer
from support.chain import write_chain
from support.greedy import assert_same
from support.late import Slow
from support.page_digests import differing, page_digests
from support.tiny import SEED, prompt, tiny_reference
from support.toy_speculation import continuation, write_toy
from support.toy_speculation import settings as toy_settings

CAPACITY = 96
SEQUENCES = 5
POOL = 12
"""Pages of the pool: two of the longest sequences."""
BROKEN = 20


@pytest.fixture(scope="module", params=["llama", "qwen3"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> Path:
    """A tiny random model's folder for several sequences, of each family in turn."""
    folder = tmp_path_factory.mktemp("several") / str(request.param)
    options = BuildOptions(request.param, random=True, seed=SEED, config="tiny", target="host", sequences=SEQUENCES)
    build(options, folder)
    return folder


@pytest.fixture(scope="module")
def executable(tiny: Path) -> Iterator[Executable]:
    with load(tiny, capacity=CAPACITY, pool_tokens=POOL * PAGE) as found:
        yield found


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> Path:
    """After id i comes i + 1, but no token can be chosen after id 20."""
    return write_chain(tmp_path_factory.mktemp("broken") / "model", broken=BROKEN, sequences=4)


@pytest.fixture(scope="module")
def alone(tiny: Path) -> Callable[[Sequence[int], int], list[int]]:
    """The ids after a prompt that is the only one."""
    known: dict[tuple[int, ...], list[int]] = {}
    tokenizer = Tokenizer.load(tiny)

    def ids(prompt: Sequence[int], count: int) -> list[int]:
        if tuple(prompt) not in known:
            with load(tiny, capacity=CAPACITY) as executable:
                generation = Generator(executable, tokenizer).generate(list(prompt), max_tokens=CAPACITY)
                known[tuple(prompt)] = [token.id for token in generation]
        return known[tuple(prompt)][:count]

    return ids


def generator(tiny: Path, executable: Any, *, late: bool = False, **options: Any) -> Generator:
    return Generator(Slow(executable, asynchronous=True) if late else executable, Tokenizer.load(tiny), **options)


def run(batch: Batch) -> list[int]:
    """Everything; the prompt of each token, in the order of their arrival."""
    return [index for index, _ in batch]


def pool(batch: Batch) -> tuple[int, int]:
    """The free pages of its pool, and all of them."""
    return batch._schedule.pool.free, batch._schedule.pool.size


def assert_each_is_as_alone(
    tiny: Path, generations: Sequence[Generation], alone: Callable[[Sequence[int], int], list[int]]
) -> None:
    for generation in generations:
        ids = alone(generation.prompt_ids, len(generation.output_ids))
        assert_same(tiny_reference(tiny), generation.prompt_ids, ids, generation.output_ids)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("options", [{}, {"eager": True}, {"chunk": 7}, {"chunk": 1}])
def test_prompts_of_all_kinds_give_what_each_gives_alone(
    tiny: Path, executable: Executable, alone: Callable[[Sequence[int], int], list[int]], options: Any, late: bool
) -> None:
    lengths = [1, 2, 15, 16, 17, 32, 33, 48, 16, 5, 1, CAPACITY - 9]
    prompts = [prompt(length, seed=length) for length in lengths]  # the ones of equal length are equal
    batch = generator(tiny, executable, late=late, **options).generate(prompts, max_tokens=20, ignore_stop=True)
    order = run(batch)

    assert [len(each.output_ids) for each in batch.generations] == [20] * 11 + [10]
    assert [each.stop for each in batch.generations] == ["length"] * 12
    assert [each.capacity_full for each in batch.generations] == [False] * 11 + [True]
    assert [each.prompt_ids for each in batch.generations] == list(map(tuple, prompts))
    assert len(order) == 11 * 20 + 10
    assert pool(batch) == (POOL, POOL)
    assert_each_is_as_alone(tiny, batch.generations, alone)
    assert order != sorted(order), "tokens of several prompts arrive in turns"


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=14),
    count=st.integers(1, 36),
    chunk=st.sampled_from([1, 8, 30, 512]),
    late=st.booleans(),
)
def test_no_split_of_prompts_into_calls_changes_a_text(
    tiny: Path,
    executable: Executable,
    alone: Callable[[Sequence[int], int], list[int]],
    lengths: list[int],
    count: int,
    chunk: int,
    late: bool,
) -> None:
    prompts = [prompt(length, seed=length) for length in lengths]
    batch = generator(tiny, executable, late=late, chunk=chunk).generate(prompts, max_tokens=count, ignore_stop=True)
    run(batch)

    assert {len(each.output_ids) for each in batch.generations} == {count}
    assert pool(batch) == (POOL, POOL)
    assert_each_is_as_alone(tiny, batch.generations, alone)


@pytest.mark.parametrize("late", [False, True])
def test_no_call_writes_a_page_but_those_of_its_own_rows(tiny: Path, executable: Executable, late: bool) -> None:
    runner = generator(tiny, executable, late=late, eager=True)
    run(runner.generate([prompt(60, seed=seed) for seed in range(2)], max_tokens=30))  # so that pages are not empty
    launch, calls, seen = runner.calls.launch, list[Plan](), set[int]()

    def watched(plan: Plan) -> str:
        expected = {
            part.member.pages[page]
            for part in plan.parts
            for page in range(part.start // PAGE, pages_of(part.start + part.count + plan.ticks - 1))
        }
        before = page_digests(executable, "kv")
        program = launch(plan)
        changed = differing(before, page_digests(executable, "kv"))
        assert changed <= expected, f"{plan.kind} wrote pages {changed - expected}"
        seen.update(changed)
        calls.append(plan)
        return program

    runner.calls.launch = watched  # type: ignore[method-assign]
    run(runner.generate([prompt(length, seed=length) for length in (40, 3, 17, 60, 33, 16)], max_tokens=30))

    assert seen == set(range(POOL))
    assert {plan.kind for plan in calls} == {"step", "decode"}
    assert max(len(plan.parts) for plan in calls) >= 3


@pytest.mark.parametrize("late", [False, True])
def test_a_stop_token_ends_one_text_and_the_others_go_on(
    tiny: Path, executable: Executable, alone: Callable[[Sequence[int], int], list[int]], late: bool
) -> None:
    prompts = [prompt(length, seed=length) for length in (20, 5, 33)]
    usual = alone(prompts[1], 24)
    stop = next(id for id in usual[3:] if id not in usual[:3])
    tokenizer = Tokenizer(Tokenizer.load(tiny).settings.model_copy(update={"stop_ids": (stop,)}), None)
    driven: Any = Slow(executable, asynchronous=True) if late else executable
    batch = Generator(driven, tokenizer).generate([*prompts, prompts[1]], max_tokens=24)
    run(batch)

    for generation in batch.generations:
        ended = stop in generation.output_ids
        assert generation.stop == ("stop_token" if ended else "length")
        assert len(generation.output_ids) == (generation.output_ids.index(stop) + 1 if ended else 24)
    assert batch.generations[1].stop == batch.generations[3].stop == "stop_token"
    assert pool(batch) == (POOL, POOL)
    assert_each_is_as_alone(tiny, batch.generations, alone)


@pytest.mark.parametrize("late", [False, True])
def test_an_error_ends_one_text_and_is_raised_when_the_others_have_ended(broken: Path, late: bool) -> None:
    prompts = [[2], [BROKEN - 2], [1, 7], [BROKEN], [BROKEN + 1]]
    with load(broken, capacity=64, pool_tokens=8 * PAGE) as executable:
        driven: Any = Slow(executable, asynchronous=True) if late else executable
        batch = Generator(driven, Tokenizer.load(broken)).generate(prompts, max_tokens=12, ignore_stop=True)
        with pytest.raises(UnusableLogits) as caught:
            run(batch)

        said = [str(each.error)[:44] if each.error else None for each in batch.generations]
        assert [each.output_ids for each in batch.generations] == [
            list(range(3, 15)),
            [BROKEN - 1, BROKEN],
            list(range(8, 20)),
            [],
            list(range(BROKEN + 2, BROKEN + 14)),
        ]
        assert [each is not None for each in said] == [False, True, False, True, False]
        assert [each.stop for each in batch.generations] == ["length", None, "length", None, "length"]
        assert caught.value.message.startswith("prompt 1: NaN or +inf in the logits of `decode` at position 2")
        assert caught.value.message.endswith("(prompts that ended in an error: 1, 3)")
        assert pool(batch) == (8, 8)


def test_a_batch_ends_where_it_is_closed_and_one_text_where_it_is_cancelled(
    tiny: Path, executable: Executable, alone: Callable[[Sequence[int], int], list[int]]
) -> None:
    runner = generator(tiny, executable, late=True)
    prompts = [prompt(length, seed=length) for length in (20, 5, 33, 60, 60)]
    batch = runner.generate(prompts, max_tokens=30, ignore_stop=True)
    order = []
    for index, _ in batch:
        order.append(index)
        if order.count(1) == 4:
            batch.cancel(1)
            batch.cancel(4)
    assert order.count(1) == 4
    assert [len(each.output_ids) for each in batch.generations] == [30, 4, 30, 30, 0]
    assert [each.stop for each in batch.generations] == ["length", None, "length", "length", None]
    assert_each_is_as_alone(tiny, batch.generations[:4], alone)

    batch = runner.generate(prompts, max_tokens=30, ignore_stop=True)
    for _ in range(7):
        next(batch)
    batch.close()
    batch.close()
    assert list(batch) == []
    assert sum(len(each.output_ids) for each in batch.generations) == 7
    assert pool(batch) == (POOL, POOL)

    unbegun = runner.generate(prompts)
    unbegun.cancel(0)
    unbegun.close()
    assert list(unbegun) == []


def test_a_batch_that_is_dropped_leaves_nothing_behind(
    tiny: Path, executable: Executable, alone: Callable[[Sequence[int], int], list[int]]
) -> None:
    slow = Slow(executable, asynchronous=True)
    runner = Generator(slow, Tokenizer.load(tiny))  # type: ignore[arg-type]
    prompts = [prompt(length, seed=length) for length in (20, 5, 33)]
    batch = runner.generate(prompts, max_tokens=30, ignore_stop=True)
    next(batch)
    schedule = batch._schedule
    del batch
    gc.collect()

    assert (schedule.pool.free, schedule.running) == (POOL, [])
    again = runner.generate(prompts, max_tokens=30, ignore_stop=True)
    run(again)
    assert_each_is_as_alone(tiny, again.generations, alone)


def test_another_text_takes_the_state_of_a_batch(tiny: Path, executable: Executable) -> None:
    runner = generator(tiny, executable)
    batch = runner.generate([prompt(20), prompt(5)])
    next(batch)
    next(runner.generate(prompt(9)))

    with pytest.raises(Superseded):
        next(batch)


def test_one_generation_of_a_batch_can_be_followed(
    tiny: Path, executable: Executable, alone: Callable[[Sequence[int], int], list[int]]
) -> None:
    prompts = [prompt(20, seed=20), prompt(5, seed=5)]
    batch = generator(tiny, executable).generate(prompts, max_tokens=12, ignore_stop=True)

    assert [token.id for token in batch.generations[1]] == batch.generations[1].output_ids
    run(batch)
    assert [len(each.output_ids) for each in batch.generations] == [12, 12]
    assert_each_is_as_alone(tiny, batch.generations, alone)


def test_the_times_of_each_text_are_from_its_admission(tiny: Path, executable: Executable) -> None:
    prompts = [prompt(60, seed=60)] * 6  # two at once
    batch = generator(tiny, executable).generate(prompts, max_tokens=12, ignore_stop=True)
    run(batch)

    for each in batch.generations:
        assert each.prefill_s > 0
        assert each.decode_s > 0
        assert each.timed_tokens == 11
        assert each.ms_per_token == pytest.approx(each.decode_s / 11 * 1e3)


def test_a_list_of_one_is_a_batch_and_a_tuple_of_ids_is_a_prompt(tiny: Path, executable: Executable) -> None:
    runner = generator(tiny, executable)
    batch = runner.generate([prompt(5)], max_tokens=3)
    assert isinstance(batch, Batch)
    assert run(batch) == [0, 0, 0]
    assert isinstance(runner.generate(tuple(prompt(5))), Generation)


@pytest.mark.parametrize(
    ("prompts", "says"),
    [
        ([[1], []], "prompt 1: the prompt is empty"),
        ([[1], [2, 512]], "prompt 1: token id 512 at index 1 is out of range"),
        ([[1], prompt(CAPACITY + 1)], f"prompt 1: the prompt has 97 tokens; the capacity is {CAPACITY}"),
        ([[1], 2], "prompt 1: the prompt is a int"),
        ([1, [2]], r"token id \[2\] at index 1 is not an integer"),
        ([b"ab"], "prompt 0: the prompt is a bytes"),
    ],
)
def test_a_list_with_a_prompt_that_cannot_run_is_refused_whole(
    tiny: Path, executable: Executable, prompts: Any, says: str
) -> None:
    with pytest.raises(PromptError, match=says) as caught:
        generator(tiny, executable).generate(prompts)
    assert caught.value.exit_code == 2


def test_what_only_one_prompt_can_have_is_refused_for_several(tiny: Path, executable: Executable) -> None:
    runner = generator(tiny, executable)
    first = runner.generate(prompt(5), max_tokens=2)
    list(first)
    with pytest.raises(PromptError, match="only a single prompt"):
        runner.generate([prompt(5), prompt(6)], after=first)  # type: ignore[call-overload]
    with pytest.raises(NoTokenizer):
        runner.generate(["hello", "you"])


def test_speculation_runs_one_prompt_and_refuses_several(tmp_path: Path) -> None:
    with load(write_toy(tmp_path / "toy"), capacity=128) as executable:
        speculating = Generator(executable, Tokenizer(toy_settings(), None), spec=True)
        with pytest.raises(PromptError, match="there are 2 prompts, and speculation runs one at a time"):
            speculating.generate([[1, 2], [3]])
        batch = speculating.generate([[1, 2]], max_tokens=9)
        run(batch)

    assert batch.generations[0].output_ids == continuation([1, 2], 9)
    assert batch.generations[0].accepted == [7, 7]


def test_a_folder_without_mixed_calls_runs_prompts_one_after_another(tmp_path: Path) -> None:
    prompts = [[1, 2], [3], [4, 5, 6]]
    with load(write_toy(tmp_path / "toy"), capacity=128) as executable:
        batch = Generator(executable, Tokenizer(toy_settings(), None)).generate(prompts, max_tokens=9)
        order = run(batch)

    assert order == sorted(order)
    assert [each.output_ids for each in batch.generations] == [continuation(ids, 9) for ids in prompts]
