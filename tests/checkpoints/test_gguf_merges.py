"""Merges of a SentencePiece vocabulary give what llama.cpp makes of its scores, or the file is refused.

The ids are those of llama.cpp, as xllamacpp 2026.10.11549 has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.gguf_text import text_of_gguf
from kern.text.tokenizer_file import TokenizerFile


def tokenizer(tokens: Mapping[str, float], users: Sequence[str] = (), unused: Sequence[str] = ()) -> TokenizerFile:
    """<unk>, <s>, </s>, and tokens with their scores, of which `users` are a user's own, and `unused` fill gaps."""
    types = dict.fromkeys(users, 4) | dict.fromkeys(unused, 5)
    names = ["<unk>", "<s>", "</s>", *tokens]
    text = text_of_gguf(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": names,
            "tokenizer.ggml.token_type": [2, 3, 3, *(types.get(token, 1) for token in tokens)],
            "tokenizer.ggml.scores": [0.0, 0.0, 0.0, *tokens.values()],
            "tokenizer.ggml.add_space_prefix": False,
        },
        Path("m.gguf"),
    )
    assert text.tokenizer_json is not None
    return TokenizerFile(text.tokenizer_json)


def runs(*lengths: int) -> dict[str, float]:
    """Runs of a letter, all of one score, as Llama 2's vocabulary has runs of spaces."""
    return {"a": -10.0} | {"a" * length: -1.0 for length in lengths}


LETTERS = {"▁": -10.0, "a": -11.0, "b": -12.0, "c": -13.0}


@pytest.mark.parametrize(
    ("lengths", "cuts"),
    [
        ((2, 4, 8), {5: [4, 1], 7: [4, 2, 1], 9: [8, 1]}),
        ((3, 2), {5: [3, 2], 7: [3, 3, 1], 9: [3, 3, 3]}),
        ((6, 4, 3, 2), {5: [4, 1], 7: [6, 1], 9: [6, 3]}),
        ((5, 6, 8, 2, 4), {5: [5], 7: [6, 1], 9: [8, 1]}),
    ],
)
def test_runs_of_one_score_are_cut_from_the_left(lengths: Sequence[int], cuts: Mapping[int, list[int]]) -> None:
    file = tokenizer(runs(*lengths))

    for length, parts in cuts.items():
        assert [len(file.token(id) or "") for id in file.encode("a" * length)] == parts


@pytest.mark.parametrize("lengths", [(2, 3, 4), (2, 3), tuple(range(2, 17)), (2, 4, 8, 16, 32, 64, 128)])
def test_runs_that_a_list_of_merges_would_split_differently_are_refused(lengths: Sequence[int]) -> None:
    with pytest.raises(CheckpointError, match=r"'aa' and 'a+' have the same score"):
        tokenizer(runs(*lengths))


@pytest.mark.parametrize(
    ("tokens", "says"),
    [
        (LETTERS | {"ab": -1.0, "bc": -1.0}, "'ab' and 'bc' have the same score"),
        (LETTERS | {"ab": 0.0, "ca": 0.0, "bc": -2.0}, "'ab' and 'ca' have the same score"),
        (LETTERS | {"ax": -1.0}, "'ax' is merged from 'x', which is not a token"),
        (LETTERS | {"xy": -1.0}, "'xy' is merged from 'x', which is not a token"),
        (LETTERS | {"ab": -1.0, "abx": -2.0}, "'abx' is merged from 'x', which is not a token"),
        (LETTERS | {"a" * 257: -1.0}, "has 257 characters"),
    ],
)
def test_a_token_that_merges_in_order_cannot_produce_is_refused(tokens: Mapping[str, float], says: str) -> None:
    with pytest.raises(CheckpointError, match=says):
        tokenizer(tokens)


@pytest.mark.parametrize("token", ["b", "ab", "xy", "▁x", "abc", "c" * 257])
def test_an_unused_token_that_a_text_may_have_is_refused(token: str) -> None:
    tokens = LETTERS | {"bc": -1.0, token: -2.0}
    with pytest.raises(CheckpointError, match=f"token '{token[:50]}.* (is marked as unused|has 257 characters)"):
        tokenizer(tokens, unused=[token])


def test_an_unused_token_that_fills_a_gap_is_not_encoded() -> None:
    file = tokenizer(LETTERS | {"[PAD7]": -1000.0, "ab": -1.0}, unused=["[PAD7]"])

    assert file.encode("cab") == [6, 8]


def test_a_token_that_nothing_makes_is_left_unused() -> None:
    assert tokenizer(LETTERS | {"xyz": -1.0}).encode("abc") == [4, 5, 6]


def test_tokens_of_a_user_are_found_whole_whatever_their_scores() -> None:
    own = {"ab": -1000.0, "bcx": -1000.0, "a" * 300: -1000.0}
    file = tokenizer(LETTERS | own, users=[*own])

    assert file.encode("cabbcx" + "a" * 300) == [6, 7, 8, 9]


def test_scores_decide_between_tokens_that_overlap() -> None:
    file = tokenizer(LETTERS | {"ab": -2.0, "bc": -1.0, "abc": -3.0})

    assert file.encode("abcab ab") == [9, 7, 3, 7]
