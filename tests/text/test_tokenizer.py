"""Tokens to text as they arrive, and what is refused of a folder's text files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kern.artifact.errors import ArtifactError
from kern.contracts.text import ContractError
from kern.engine.generation import Generation
from kern.text import Tokenizer
from kern.text.tokenizer import NotText, TextStream
from support.tokenizers import bytes_tokenizer, spaced_library, spaced_tokenizer

TOKENIZER = bytes_tokenizer()


@given(st.text())
def test_streamed_text_is_whole_and_never_ends_inside_a_character(text: str) -> None:
    stream, pieces = TextStream(TOKENIZER), []
    for id in TOKENIZER.encode(text):
        pieces.append(stream.add(id))
        assert "\ufffd" not in pieces[-1] or "\ufffd" in text
    pieces.append(stream.finish())

    assert "".join(pieces) == text


@given(st.lists(st.integers(0, 258), max_size=40))
def test_streamed_pieces_are_the_text_of_all_ids(ids: list[int]) -> None:
    stream = TextStream(TOKENIZER)

    assert "".join([*(stream.add(id) for id in ids), stream.finish()]) == TOKENIZER.decode(ids)


@pytest.mark.parametrize(
    ("before", "ids", "pieces"),
    [
        ((), [3, 4], ["Hello", " world"]),  # nothing precedes: the decoder leaves the space out
        ((0,), [3, 4], ["Hello", " world"]),  # <s> has no text either
        ((0, 3, 5), [3, 4], [" Hello", " world"]),
        ((0, 3, 1), [3, 5], [" Hello", "!"]),
        ((0, 3, 1, 0, 1, 0), [4], [" world"]),
        ((3, 2), [8, 3], ["  ", " Hello"]),
        ((3, 6, 7), [4], [" world"]),
        ((3, 6), [7, 5], ["", "\ufffd!"]),  # the character began in the prompt: its rest is shown for what it is
        ((5,), [2, 6, 7, 1, 5], [" ", "", "é", "", "!"]),
    ],
)
def test_the_first_word_keeps_its_space_where_text_precedes_it(
    before: tuple[int, ...], ids: list[int], pieces: list[str]
) -> None:
    stream = TextStream(spaced_tokenizer(), before)

    assert [stream.add(id) for id in ids] == pieces


WHOLE = st.lists(st.sampled_from([(0,), (1,), (2,), (3,), (4,), (5,), (8,), (6, 7)]), max_size=12).map(
    lambda characters: [id for character in characters for id in character]
)
"""Ids of whole characters."""


@given(WHOLE, WHOLE)
def test_streamed_text_is_what_the_whole_text_has_after_the_prompt(before: list[int], ids: list[int]) -> None:
    library, stream = spaced_library(), TextStream(spaced_tokenizer(), before)
    streamed = "".join([*(stream.add(id) for id in ids), stream.finish()])

    assert library.decode(before) + streamed == library.decode(before + ids)


def test_a_generation_streams_after_its_prompt() -> None:
    generation = Generation(spaced_tokenizer(), [0, 3, 5], 3, stop_ids=(), stops=())

    assert [generation.add(id, 3).text for id in (3, 4, 5)] == [" Hello", " world", "!"]


def test_a_character_comes_out_with_its_last_token() -> None:
    ids, stream = TOKENIZER.encode("né€"), TextStream(TOKENIZER)

    assert [stream.add(id) for id in ids] == ["n", "", "é", "", "", "€"]
    assert stream.finish() == ""


def test_an_incomplete_character_shows_at_the_end() -> None:
    ids, stream = TOKENIZER.encode("a€"), TextStream(TOKENIZER)
    for id in ids[:-1]:
        stream.add(id)

    assert stream.finish() == "\ufffd"


def test_special_tokens_are_read_but_not_shown() -> None:
    ids = TOKENIZER.encode("ab<end>ab")

    assert ids == [257, 256, 257]
    assert TOKENIZER.decode(ids) == "abab"


def test_the_models_own_beginning_is_put_before_a_prompt() -> None:
    assert bytes_tokenizer(bos=258).encode("ab") == [258, 257]
    assert bytes_tokenizer(bos=258).encode_exactly("ab") == [257]


@pytest.fixture
def folder(smollm2: Path, tmp_path: Path) -> Path:
    """A folder with a tokenizer, to be damaged."""
    for name in ("manifest.json", "text.json", "tokenizer.json"):
        shutil.copy(smollm2 / name, tmp_path / name)
    return tmp_path


def test_a_tokenizer_of_another_folder_is_refused(folder: Path) -> None:
    with (folder / "tokenizer.json").open("a") as file:
        file.write(" ")

    with pytest.raises(ContractError, match="hash"):
        Tokenizer.load(folder)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ({"stop_ids": "2"}, "stop_ids"),
        ({"more": 1}, "more"),
        ({"decode_bytes": {"fixed": 1}}, "decode_bytes.per_context_token"),
        ({"decode_bytes": {"fixed": -1, "per_context_token": 1}}, "decode_bytes.fixed"),
        ({"vocabulary": 0}, "vocabulary"),
        ({"positions": 0}, "positions"),
        ({"embedding": ""}, "embedding"),
        ({"stop_ids": [-1]}, "stop_ids.0"),
        ({"stop_ids": [2, 49152]}, "stop_ids has the id 49152; ids are below 49152"),
        ({"bos": 49152}, "bos has the id 49152"),
        ({"bos": -1}, "bos"),
        ({"special_tokens": {"messages": "x"}}, r"special_tokens\.messages"),
        ({"special_tokens": {"eos_token": 2}}, r"special_tokens\.eos_token"),
        ({"special_tokens": None}, "special_tokens"),
        ({"version": 1}, "has version 1, not 3: an older kern built this folder"),
        ({"version": 0}, "has version 0, not 3: an older kern"),
        ({"version": 2}, "has version 2, not 3: an older kern"),
        ({"version": 4}, "has version 4, not 3: a newer kern"),
        ({"version": "2"}, "version"),
    ],
)
def test_wrong_settings_are_refused_by_name(folder: Path, edit: dict[str, object], says: str) -> None:
    path = folder / "text.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | edit))

    with pytest.raises(ContractError, match=says):
        Tokenizer.load(folder)


def test_a_folder_of_an_older_kern_is_to_be_built_again(folder: Path) -> None:
    path = folder / "text.json"
    settings = json.loads(path.read_text())
    del settings["version"], settings["special_tokens"]
    path.write_text(json.dumps(settings))

    with pytest.raises(ContractError, match="an older kern built this folder") as caught:
        Tokenizer.load(folder)

    assert "build it again" in (caught.value.help or "")


@pytest.mark.parametrize("name", ["text.json", "tokenizer.json"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()

    with pytest.raises((ArtifactError, ContractError), match=name):
        Tokenizer.load(folder)


@pytest.mark.parametrize("text", ["\ud800", "caf\udce9"])
def test_half_a_character_is_no_text(text: str) -> None:
    with pytest.raises(NotText, match=f"at index {len(text) - 1}") as caught:
        TOKENIZER.encode(text)

    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "model",
    [
        {"type": "BPE", "vocab": {"h": 4_000_000_000, "i": 1}, "merges": [["h", "i"]]},
        {"type": "BPE", "vocab": {"h": 0}, "merges": [["h", "x"]]},
        {"type": "none"},
    ],
)
def test_a_tokenizer_that_the_library_cannot_take_is_refused(model: dict[str, object]) -> None:
    with pytest.raises(ContractError, match="is not a tokenizer"):
        Tokenizer(TOKENIZER.settings, json.dumps({"version": "1.0", "model": model}))
