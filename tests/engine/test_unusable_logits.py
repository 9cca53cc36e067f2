"""Models with NaN somewhere: an error that says where, after the correct tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kern.engine import Generation, Generator, score
from kern.engine.choices import UnusableLogits
from kern.engine.sequence import Ids, PromptError
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from kern.text import Tokenizer
from support import host_driven
from support.chain import CONFIG, write_chain
from support.late import Slow
from support.toy_speculation import POSITIONS, ROWS, continuation, settings, spoiling, write_toy

BROKEN = 20
LATE = {"late": True}
WAYS: list[dict[str, Any]] = [
    {},
    {"eager": True},
    {"host": True},
    {"chunk": 2},
    LATE,
    {"late": True, "eager": True},
]
ROUNDS: list[dict[str, Any]] = [
    {"spec": True},
    {"spec": True, **LATE},
    {"spec": True, "host": True},
    {},
    {"host": True},
]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> Path:
    """No token can be chosen after id 20."""
    return write_chain(tmp_path_factory.mktemp("broken") / "model", broken=BROKEN)


@pytest.fixture(scope="module")
def drafted(tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> Path:
    """The same with a random draft."""
    return write_chain(tmp_path_factory.mktemp("drafted") / "model", broken=BROKEN, draft="random")


def generate(
    executable: Executable, tokenizer: Tokenizer, prompt: Sequence[int], late: bool = False, **options: Any
) -> tuple[Generation, UnusableLogits]:
    """A generation that must end in an error, and the error."""
    driven: Any = Slow(executable, asynchronous=True) if late else executable
    generator = host_driven.generator(driven, tokenizer, **options)
    generation = generator.generate(prompt, max_tokens=64, ignore_stop=True)
    with pytest.raises(UnusableLogits) as caught:
        list(generation)
    return generation, caught.value


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("prompt", [[BROKEN], [BROKEN - 1], [3, 9, BROKEN - 9], [5, BROKEN]])
def test_the_program_and_the_position_are_named(broken: Path, prompt: list[int], way: dict[str, Any]) -> None:
    with load(broken, capacity=128) as executable:
        generation, error = generate(executable, Tokenizer.load(broken), prompt, **way)

    assert generation.output_ids == list(range(prompt[-1] + 1, BROKEN + 1))
    assert generation.stop is None
    last = len(prompt) - 1 + len(generation.output_ids)
    program = "decode" if generation.output_ids else "step"
    assert error.message.startswith(f"NaN or +inf in the logits of `{program}` at position {last}")
    assert error.exit_code == 1


def test_earlier_tokens_and_other_texts_are_correct(broken: Path) -> None:
    with load(broken, capacity=64) as executable:
        generator = Generator(executable, Tokenizer.load(broken))
        with pytest.raises(UnusableLogits):
            list(generator.generate([BROKEN - 3], max_tokens=60, ignore_stop=True))
        for prompt in ([BROKEN + 1], [1], [7, BROKEN + 1]):
            found = generator.generate(prompt, max_tokens=10, ignore_stop=True)
            assert [token.id for token in found] == list(range(prompt[-1] + 1, prompt[-1] + 11))


@pytest.mark.parametrize("way", ROUNDS)
@pytest.mark.parametrize("accepts", [[7, 7, 7], [0, 3, 7, 1]])
def test_in_rounds_the_verification_is_named(tmp_path: Path, accepts: list[int], way: dict[str, Any]) -> None:
    prompt, program = [16, 5, 2], "verify" if "spec" in way else "decode"
    follows = continuation(prompt, 2 * ROWS)
    for index, last in enumerate(follows):
        folder = write_toy(tmp_path / f"toy{index}", spoiling(len(prompt), accepts), last=last)
        with load(folder, capacity=POSITIONS) as executable:
            generation, error = generate(executable, Tokenizer(settings(), None), prompt, **way)
        assert generation.output_ids == follows[: index + 1]
        where = f"`{program}` at position {len(prompt) + index} "
        assert error.message.startswith(f"NaN or +inf in the logits of {where}")


@pytest.mark.parametrize("options", [{}, {"eager": True}, {"host": True}])
def test_a_real_draft_changes_neither_the_tokens_nor_the_error(drafted: Path, options: dict[str, Any]) -> None:
    with load(drafted, capacity=128) as executable:
        generation, error = generate(executable, Tokenizer.load(drafted), [1, BROKEN - 6], spec=True, **options)

    assert generation.output_ids == list(range(BROKEN - 5, BROKEN + 1))
    assert error.message.startswith("NaN or +inf in the logits of `verify` at position 7 ")


@pytest.mark.parametrize("at", [0, 1, 40, 63, 64, 65, 129])
def test_a_score_names_the_first_position_with_nan(broken: Path, at: int) -> None:
    ids = [3] * at + [BROKEN] + [3] * 20
    with load(broken, capacity=256) as executable, pytest.raises(UnusableLogits) as caught:
        score(executable, Tokenizer.load(broken).settings, ids)

    assert caught.value.message == f"NaN in the nll of `score` at position {at}"


def test_a_huge_nll_has_no_perplexity(tmp_path: Path, compiled_once: None) -> None:
    folder = write_chain(tmp_path / "loud", gain=4096)
    with load(folder, capacity=64) as executable:
        found = score(executable, Tokenizer.load(folder).settings, [1, 2, 4])

    logit = 4096 * math.sqrt(CONFIG.hidden)
    assert found.nll == pytest.approx(logit / 2, rel=2e-3)
    assert found.perplexity is None


def test_a_banned_token_is_never_chosen_and_infinitely_unlikely(tmp_path: Path, compiled_once: None) -> None:
    folder = write_chain(tmp_path / "banned", banned=6)
    with load(folder, capacity=64) as executable:
        tokenizer = Tokenizer.load(folder)
        (chosen,) = Generator(executable, tokenizer).generate([5], max_tokens=1)
        found = score(executable, tokenizer.settings, [4, 5, 6, 7])
        other = score(executable, tokenizer.settings, [4, 5])

    assert chosen.id == 0, "all others are equal"
    assert (found.nll, found.perplexity) == (math.inf, None)
    assert other.perplexity == pytest.approx(math.exp(other.nll))


@pytest.mark.parametrize(
    "ids",
    [
        None,
        5,
        b"\1\2",
        {1: 2},
        {1, 2},
        [1.0, 2.0],
        [1, 2.5],
        [True, False],
        [1, "2"],
        [1, None],
        [1, 2**70],
        [-1],
        np.array([1.0, 2.0]),
        np.array([True, False]),
        np.array([[1, 2]]),
        np.array(1),
        np.array(["a"]),
        np.array([1, None], object),
        np.array([], np.int64),
    ],
    ids=repr,
)
def test_token_ids_that_are_not_integers_are_refused(broken: Path, ids: Any) -> None:
    tokenizer = Tokenizer.load(broken)
    with load(broken, capacity=64) as executable:
        with pytest.raises(PromptError):
            Generator(executable, tokenizer).generate(ids)
        with pytest.raises(PromptError):
            score(executable, tokenizer.settings, ids)


@pytest.mark.parametrize("texts", [["1", "2"], [[1, 2]]])
def test_only_one_text_at_a_time_is_scored(broken: Path, texts: Any) -> None:
    with load(broken, capacity=64) as executable, pytest.raises(PromptError, match="at index 0 is not an integer"):
        score(executable, Tokenizer.load(broken).settings, texts)


@pytest.mark.parametrize("ids", [(5, 6), range(5, 7), np.array([5, 6]), np.array([5, 6], np.uint8), [np.int32(5), 6]])
def test_integers_of_any_kind_are_token_ids(broken: Path, ids: Ids) -> None:
    with load(broken, capacity=64) as executable:
        tokenizer = Tokenizer.load(broken)
        found = Generator(executable, tokenizer).generate(ids, max_tokens=2)
        assert [token.id for token in found] == [7, 8]
        assert found.prompt_ids == (5, 6)
        assert all(type(id) is int for id in found.prompt_ids)
        assert score(executable, tokenizer.settings, ids).tokens == 1


@pytest.mark.parametrize("count", [None, "5", 2.5, 0, -1, True])
def test_numbers_of_tokens_are_integers_of_at_least_one(broken: Path, count: Any) -> None:
    with load(broken, capacity=64) as executable:
        with pytest.raises(PromptError, match="max_tokens"):
            Generator(executable, Tokenizer.load(broken)).generate([1], max_tokens=count)
        if count is not None:  # None is the default
            with pytest.raises(PromptError, match="chunk"):
                Generator(executable, Tokenizer.load(broken), chunk=count)
