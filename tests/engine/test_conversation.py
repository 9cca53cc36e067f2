"""Conversations: each turn gives the same answer as a separate run, and computes only the new tokens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kern.engine import Conversation, Generation, Generator
from kern.engine.calls import Superseded
from kern.engine.sequence import PromptError
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from kern.text.template_bounds import ChatError
from support import host_driven
from support.late import Slow
from support.talking_toy import Counting, ids_of, talker, text_of, write_talker
from support.toy_speculation import POSITIONS, ROWS, continuation

WAYS: list[dict[str, Any]] = [
    {},
    {"host": True},
    {"late": True},
    {"spec": True},
    {"spec": True, "late": True},
    {"spec": True, "host": True},
]
SAID = ["hello", "and then?", "why", "x" * 40]


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executable]:
    """A toy whose draft is right wherever it has state."""
    with load(write_talker(tmp_path_factory.mktemp("oracle") / "toy"), capacity=POSITIONS) as executable:
        yield executable


def talk(executable: Any, *, late: bool = False, template: str | None = None, **options: Any) -> Conversation:
    driven = Slow(executable, asynchronous=True) if late else executable
    tokenizer = talker() if template is None else talker(template)
    return Conversation(host_driven.generator(driven, tokenizer, eager=True, **options))


def done(answer: Generation) -> Generation:
    """The complete answer."""
    for _ in answer:
        pass
    return answer


def common(first: list[int], second: list[int]) -> int:
    index = 0
    while index < min(len(first), len(second)) and first[index] == second[index]:
        index += 1
    return index


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [1, 2, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS - 2])
def test_each_turn_is_that_of_a_fresh_run(oracle: Executable, way: dict[str, Any], count: int) -> None:
    counting: Any = Counting(oracle)
    conversation, said = talk(counting, **way), ""
    before: list[int] = []
    for text in SAID:
        said += f"u:{text}|a:"
        counted = counting.prefilled
        answer = done(conversation.say(text, max_tokens=count))

        assert text_of(answer.prompt_ids) == said
        assert answer.output_ids == continuation(answer.prompt_ids, count)
        assert counting.prefilled - counted == len(said) - 1 - answer.reused
        # Rounds leave the draft's state up to the anchor of the last of them.
        rounds = -(-count // ROWS)
        kept = len(before) - 1 if "spec" not in way else len(before) - count + ROWS * (rounds - 1) - 1
        assert answer.reused == (kept if before else 0)
        if "spec" in way:
            assert answer.accepted == [ROWS - 1] * rounds
        before = [*answer.prompt_ids, *answer.output_ids]
        said += answer.text + "|"

    assert [message["role"] for message in conversation.messages] == ["user", "assistant"] * len(SAID)


@pytest.mark.parametrize("spec", [False, True])
def test_a_template_may_render_a_turn_differently(oracle: Executable, spec: bool) -> None:
    """It leaves out all answers but the last, as templates do with reasoning."""
    template = "{% for m in messages %}{% if m.role == 'user' or loop.last %}{{ m.content }}|{% endif %}{% endfor %}"
    conversation, before = talk(oracle, template=template, spec=spec), list[int]()
    for text in SAID:
        answer = done(conversation.say(text, max_tokens=11))

        assert answer.output_ids == continuation(answer.prompt_ids, 11)
        assert answer.reused == common(before, list(answer.prompt_ids[:-1]))
        if spec:
            assert answer.accepted == [ROWS - 1] * 2
        before = list(answer.prompt_ids)


@pytest.mark.parametrize("spec", [False, True])
@pytest.mark.parametrize("room", range(1, 2 * ROWS + 2))
def test_plain_steps_after_the_last_round_compute_no_draft_state(oracle: Executable, room: int, spec: bool) -> None:
    prompt = ids_of("u:hello|a:")
    small = Generator(oracle, talker(positions=len(prompt) - 1 + room), eager=True, spec=spec)
    first = done(small.generate(prompt, max_tokens=100))
    assert len(first.output_ids) == room

    # Another generator may not count on it, the same one may.
    again = done(small.generate(prompt, max_tokens=room, after=first))
    assert (again.output_ids, again.accepted) == (first.output_ids, first.accepted)
    assert again.reused == len(prompt) - 1
    other = done(Generator(oracle, talker(), spec=spec).generate(prompt, max_tokens=9, after=first))
    assert (other.reused, other.output_ids) == (0, continuation(prompt, 9))


@pytest.mark.parametrize("spec", [False, True])
@pytest.mark.parametrize("given", range(2 * ROWS + 2))
def test_an_interrupted_answer_stays_in_the_conversation(oracle: Executable, given: int, spec: bool) -> None:
    conversation = talk(oracle, spec=spec, late=True)
    broken = conversation.say("hello", max_tokens=100)
    text = "".join(token.text for token in islice(broken, given))
    answer = done(conversation.say("go on", max_tokens=2 * ROWS))

    assert text_of(answer.prompt_ids) == f"u:hello|a:{text}|u:go on|a:"
    assert answer.output_ids == continuation(answer.prompt_ids, 2 * ROWS)
    assert answer.accepted == ([ROWS - 1] * 2 if spec else [])
    if given:
        assert answer.reused >= len("u:hello|a:") - 1
        with pytest.raises(Superseded):
            next(broken)


def test_an_interrupted_prefill_is_repeated(oracle: Executable) -> None:
    counting: Any = Counting(oracle)
    conversation = talk(counting, chunk=4)
    done(conversation.say("hello", max_tokens=5))
    counting.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        next(conversation.say("one more thing", max_tokens=5))
    answer = done(conversation.say("go on", max_tokens=5))

    assert answer.reused == 0
    assert answer.output_ids == continuation(answer.prompt_ids, 5)


def test_what_another_text_has_overwritten_is_computed_again(oracle: Executable) -> None:
    conversation = talk(oracle)
    done(conversation.say("hello", max_tokens=5))
    done(Generator(oracle, talker()).generate([1, 2, 3], max_tokens=30))
    answer = done(conversation.say("and then?", max_tokens=5))

    assert answer.reused == 0
    assert answer.output_ids == continuation(answer.prompt_ids, 5)


def test_the_last_token_is_always_run(oracle: Executable) -> None:
    generator = Generator(oracle, talker())
    first = done(generator.generate([5, 6, 7], max_tokens=4))
    whole = [5, 6, 7, *first.output_ids]
    for length in range(1, len(whole) + 1):
        again = done(generator.generate(whole[:length], max_tokens=3, after=first))
        assert again.output_ids == continuation(whole[:length], 3)
        assert again.reused == min(length - 1, len(whole) - 1)
        first = done(generator.generate([5, 6, 7], max_tokens=4))


def test_a_turn_that_exceeds_the_capacity_leaves_the_conversation_unchanged(tmp_path: Path) -> None:
    with load(write_talker(tmp_path / "toy"), capacity=20) as executable:
        conversation = talk(executable)
        assert done(conversation.say("hello", max_tokens=100)).capacity_full
        before = conversation.messages
        with pytest.raises(PromptError, match="the conversation has 28 tokens; the capacity is 20"):
            conversation.say("x", max_tokens=5)
        assert conversation.messages == before


def test_a_system_message_comes_first_and_a_template_may_refuse_it(oracle: Executable) -> None:
    generator = Generator(oracle, talker())
    answer = Conversation(generator, "be brief").say("hello", max_tokens=2)
    assert text_of(answer.prompt_ids) == "s:be brief|u:hello|a:"

    template = "{% if messages[0].role == 'system' %}{{ raise_exception('no system message') }}{% endif %}"
    refusing = Conversation(Generator(oracle, talker(template)), "be brief")
    with pytest.raises(ChatError, match="refuses these messages: no system message"):
        refusing.say("hello", max_tokens=2)
    assert [message["role"] for message in refusing.messages] == ["system"]
