"""Stop strings: a text ends before the first that is complete, wherever its tokens end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kern.engine import Generator
from kern.engine.sequence import PromptError
from kern.engine.stop_strings import StopStrings, check_stops
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from kern.text import Tokenizer
from kern.text.tokenizer import NoTokenizer, TextStream
from support import host_driven
from support.late import Slow
from support.talking_toy import LETTERS, ids_of, talker, text_of, write_talker
from support.tokenizers import bytes_tokenizer
from support.toy_speculation import POSITIONS, ROWS, continuation, settings

PROMPT = ids_of("u:hello|a:")
WAYS: list[dict[str, Any]] = [{}, {"host": True}, {"late": True}, {"spec": True}, {"spec": True, "host": True}]


class Pieces:
    """A stream whose ids are places in a list of texts."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = pieces

    def add(self, id: int) -> str:
        return self._pieces[id]

    def finish(self) -> str:
        return ""


def passed(pieces: Sequence[str], stops: Sequence[str]) -> tuple[list[str], bool]:
    """What each piece gives, and what is left at the end; whether a stop string was found."""
    stream: Any = Pieces(pieces)
    stopping = StopStrings(stream, stops)
    given = []
    for id in range(len(pieces)):
        given.append(stopping.add(id))
        if stopping.found:
            break
    given.append(stopping.finish())
    return given, stopping.found


@pytest.mark.parametrize(
    ("pieces", "stops", "given", "found"),
    [
        (["one ", "two"], [], ["one ", "two", ""], False),
        (["one\n", "two"], ["\n"], ["one", ""], True),
        (["one EN", "D two"], ["END"], ["one ", "", ""], True),
        (["one E", "N", "D"], ["END"], ["one ", "", "", ""], True),
        (["one E", "N", "d"], ["END"], ["one ", "", "ENd", ""], False),
        (["one E", "N"], ["END"], ["one ", "", "EN"], False),
        (["aab", "aac"], ["aabaac"], ["", "", ""], True),
        (["aabaa", "baac!"], ["aabaac"], ["", "aab", ""], True),
        (["ab", "cd"], ["abcd", "c"], ["", "ab", ""], True),
        (["xabc"], ["bc", "abc", "c"], ["x", ""], True),
        (["a", "END", "never"], ["END"], ["a", "", ""], True),
        (["END"], ["END"], ["", ""], True),
    ],
)
def test_what_may_begin_a_stop_string_is_held_back(
    pieces: list[str], stops: list[str], given: list[str], found: bool
) -> None:
    assert passed(pieces, stops) == (given, found)


def ended(text: str, stops: Sequence[str]) -> str:
    """The text before the stop string that is complete first, the longest of those that end there."""
    for end in range(1, len(text) + 1):
        whole = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if whole:
            return text[: end - max(whole)]
    return text


@given(
    pieces=st.lists(st.text("ab", max_size=4), max_size=12),
    stops=st.lists(st.text("ab", min_size=1, max_size=5), max_size=3),
)
def test_the_end_does_not_depend_on_how_the_text_is_cut(pieces: list[str], stops: list[str]) -> None:
    given, found = passed(pieces, stops)
    text, so_far = "".join(pieces), ""

    assert "".join(given) == ended(text, stops)
    for place, piece in enumerate(given[: len(pieces)]):
        so_far += piece
        assert found or len(so_far) >= len("".join(pieces[: place + 1])) - max(map(len, stops), default=0)


def test_a_long_stop_string_takes_time_in_proportion() -> None:
    length = 200_000
    given, found = passed(["a" * length, "b" + "a" * length, "b"], ["a" * length + "ab"])

    assert not found
    assert sum(map(len, given)) == 2 * length + 2


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executable]:
    with load(write_talker(tmp_path_factory.mktemp("stops") / "toy"), capacity=POSITIONS) as executable:
        yield executable


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", range(1, 2 * ROWS + 2))
def test_a_generation_ends_before_a_stop_string(toy: Executable, way: dict[str, Any], place: int) -> None:
    options = dict(way)
    driven: Any = Slow(toy, asynchronous=True) if options.pop("late", False) else toy
    follows = continuation(PROMPT, 40)
    text = text_of(follows)
    stop = text[place : place + 3]
    end = text.index(stop)
    generator = host_driven.generator(driven, talker(), **options)
    generation = generator.generate(PROMPT, max_tokens=40, stop=[stop, "never said"])
    pieces = [token.text for token in generation]

    assert generation.stop == "stop_text"
    assert "".join(pieces) == generation.text == text[:end]
    assert generation.output_ids == follows[: end + 3]
    assert pieces[-3:] == ["", "", ""]


def test_what_was_held_back_is_given_at_the_end(toy: Executable) -> None:
    text = text_of(continuation(PROMPT, 10))
    generation = Generator(toy, talker()).generate(PROMPT, max_tokens=10, stop=text[8:] + "x")
    pieces = [token.text for token in generation]

    assert generation.stop == "length"
    assert pieces[8:] == ["", text[8:]]
    assert generation.text == text


def test_a_stop_token_ends_a_text_before_its_stop_string_is_complete(toy: Executable) -> None:
    follows = continuation(PROMPT, 10)
    stop_id = follows[5]
    end = follows.index(stop_id)
    tokenizer = talker(stop_ids=[stop_id])
    stops = [text_of(follows)[end - 1 : end + 3]]
    generator = Generator(toy, tokenizer)
    generation = generator.generate(PROMPT, max_tokens=10, stop=stops)
    assert [token.id for token in generation] == follows[: end + 1]
    assert generation.stop == "stop_token"
    ignoring = generator.generate(PROMPT, max_tokens=10, stop=stops, ignore_stop=True)
    assert [token.id for token in ignoring] == follows[: end + 3]
    assert ignoring.stop == "stop_text"


def test_characters_of_several_tokens_are_compared_whole() -> None:
    tokenizer = bytes_tokenizer()
    stopping = StopStrings(TextStream(tokenizer), ["ö"])
    given = [stopping.add(id) for id in tokenizer.encode("aéö")]

    assert given == ["a", "", "é", "", ""]
    assert stopping.found


@pytest.mark.parametrize(
    ("stop", "says"),
    [
        ("", "a stop string is empty"),
        ("<end>", "the stop string '<end>' is a special token, which never appears in the text"),
    ],
)
def test_a_stop_string_that_no_text_has_is_refused(stop: str, says: str) -> None:
    with pytest.raises(PromptError, match=says) as caught:
        check_stops(["fine", stop], bytes_tokenizer())
    assert caught.value.exit_code == 2


def test_there_is_no_text_to_stop_at_without_a_tokenizer(toy: Executable) -> None:
    generator = Generator(toy, Tokenizer(settings(), None))
    assert len(list(generator.generate([1, 2], max_tokens=2))) == 2
    with pytest.raises(NoTokenizer, match="no text for a stop string"):
        generator.generate([1, 2], stop=["x"])


def test_the_toy_says_what_its_letters_are() -> None:
    assert talker().encode("".join(LETTERS)) == list(range(len(LETTERS)))


def test_the_folder_of_the_toy_is_loaded(tmp_path: Path) -> None:
    assert Tokenizer.load(write_talker(tmp_path / "toy")).decode([1, 2]) == '!"'
