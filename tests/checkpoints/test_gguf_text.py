"""What a GGUF file says of texts: the ids that end them, the model's beginning, the tokens that templates know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest

from kern.checkpoints.checkpoint import CheckpointError, TextSource
from kern.checkpoints.gguf_text import text_of_gguf
from kern.text.tokenizer_file import TokenizerFile

TOKENS = ["a", "b", "ab", "<end>", "<begin>", "<turn>", "<message>", "<pad>"]


def text(*more: str, types: dict[int, int] | None = None, **settings: Any) -> TextSource:
    """`settings` are keys below `tokenizer.ggml.`; `more` are tokens 8 and on, control tokens unless `types` says."""
    tokens = [*TOKENS, *more]
    kinds = [1, 1, 1, *[3] * (len(tokens) - 3)]
    for id, kind in (types or {}).items():
        kinds[id] = kind
    given = {
        "model": "gpt2", "pre": "smollm", "tokens": tokens, "token_type": kinds, "merges": ["a b"], "eos_token_id": 3,
    } | settings  # fmt: skip
    return text_of_gguf({f"tokenizer.ggml.{key}": value for key, value in given.items()}, Path("m.gguf"))


def encoded(source: TextSource, prompt: str) -> list[int]:
    assert source.tokenizer_json is not None
    return TokenizerFile(source.tokenizer_json).encode(prompt)


@pytest.mark.parametrize(
    ("settings", "stops"),
    [
        ({}, (3,)),
        ({"eos_token_id": None}, ()),
        ({"eot_token_id": 5}, (3, 5)),
        ({"eot_token_id": 5, "eom_token_id": 6}, (3, 5, 6)),
        ({"eos_token_id": 5, "eot_token_id": 5}, (5,)),
        ({"fim_pad_token_id": 7, "fim_rep_token_id": 5, "fim_sep_token_id": 6}, (3, 7, 5, 6)),
    ],
)
def test_the_keys_of_ends_are_obeyed(settings: dict[str, Any], stops: tuple[int, ...]) -> None:
    assert text(**settings).stop_ids == stops


# llama.cpp, src/llama-vocab.cpp: the texts in `special_eog_ids`, and those of fim_pad, fim_rep and fim_sep.
@pytest.mark.parametrize(
    "name",
    [
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
        "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
        "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[", "<|fim_pad|>",
        "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
        "<reponame>", "<|file_sep|>",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [1, 3, 4])
def test_a_token_ends_a_text_by_its_name_whatever_its_kind(name: str, kind: int) -> None:
    source = text("<other>", name, types={8: 4, 9: kind})

    assert source.stop_ids == (3, 9)
    assert encoded(source, f"ab{name}b") == [2, 9, 1]
    assert source.tokenizer_json is not None
    assert TokenizerFile(source.tokenizer_json).decode([2, 9, 8]) == "ab<other>"


@pytest.mark.parametrize(
    ("names", "stops"),
    [
        (["<|end|>", "<|return|>", "<|call|>"], (3, 9, 10)),
        (["<|end|>", "<|flush|>", "<|calls|>"], (3, 9, 10)),
        (["<|end|>", "<|return|>"], (3, 8, 9)),
        (["<|end|>", "<|call|>"], (3, 8, 9)),
        (["</s>", "<|tool_response>"], (3, 9)),
    ],
)
def test_what_ends_less_than_a_turn_does_not_end_a_text(names: list[str], stops: tuple[int, ...]) -> None:
    assert text(*names).stop_ids == stops


def test_an_ordinary_token_that_merges_make_is_not_an_end() -> None:
    pieces = ["<", "/", "s", ">", "</", "</s", "</s>"]
    types = dict.fromkeys(range(8, 15), 1)
    merges = ["a b", "< /", "</ s", "</s >"]

    assert text(*pieces, types=types, merges=merges).stop_ids == (3,)
    assert text(*pieces, types=types | {14: 3}, merges=merges).stop_ids == (3, 14)
    assert text(*pieces, types=types, merges=merges[:3]).stop_ids == (3, 14)


@pytest.mark.parametrize(
    ("settings", "bos"),
    [
        ({"bos_token_id": 4}, None),  # by default only llama-bpe and SentencePiece put one first
        ({"bos_token_id": 4, "add_bos_token": True}, 4),
        ({"bos_token_id": 4, "pre": "llama-bpe"}, 4),
        ({"bos_token_id": 4, "pre": "llama-bpe", "add_bos_token": False}, None),
        ({"pre": "qwen2"}, None),
    ],
)
def test_a_beginning_is_put_first_where_the_file_or_its_pre_tokenizer_says_so(
    settings: dict[str, Any], bos: int | None
) -> None:
    assert text(**settings).bos == bos


def test_missing_ids_of_a_sentencepiece_vocabulary_have_defaults() -> None:
    found = text(model="llama", scores=[0.0] * 8, eos_token_id=None)

    assert (found.bos, found.stop_ids) == (1, (2,))
    assert found.special_tokens == {"bos_token": "b", "eos_token": "ab", "unk_token": "a"}


def test_templates_know_the_tokens_that_keys_name() -> None:
    keys = gguf.Keys.Tokenizer
    named = {keys.BOS_ID: 4, keys.EOS_ID: 3, keys.UNK_ID: 0, keys.PAD_ID: 7, keys.SEP_ID: 1, keys.MASK_ID: 2}
    settings = {key.removeprefix("tokenizer.ggml."): id for key, id in named.items()}

    assert text(**settings).special_tokens == {
        "bos_token": "<begin>",
        "eos_token": "<end>",
        "unk_token": "a",
        "pad_token": "<pad>",
        "sep_token": "b",
        "mask_token": "ab",
    }


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"add_bos_token": True}, r"add_bos_token in the GGUF is true, but tokenizer\.ggml\.bos_token_id is missing"),
        ({"pre": "llama-bpe"}, "bos_token_id is missing"),
        ({"add_bos_token": 1}, "add_bos_token in the GGUF is 1, not of type bool"),
        ({"add_eos_token": True}, "add_eos_token in the GGUF is True: a prompt that ends"),
        ({"add_sep_token": True}, "add_sep_token"),
        ({"add_space_prefix": True}, "add_space_prefix"),
        ({"remove_extra_whitespaces": True}, "remove_extra_whitespaces"),
        ({"normalizer.lowercase": True}, "normalizer.lowercase"),
        ({"normalizer.strip_accents": True}, "normalizer.strip_accents"),
        ({"precompiled_charsmap": [1]}, "precompiled_charsmap"),
        ({"suppress_tokens": [5]}, "suppress_tokens"),
        ({"eos_token_id": 8}, "eos_token_id in the GGUF is 8, but it has 8 tokens"),
        ({"eot_token_id": 4_000_000_000}, "eot_token_id in the GGUF is 4000000000"),
        ({"bos_token_id": "4"}, "bos_token_id in the GGUF is '4', not of type int"),
        ({"token_type": [1, 1, 1, 3, 3, 3, 3, 0]}, "'<pad>' has the unknown type 0"),
        ({"token_type": [1, 1, 1, 3, 3, 3, 3, 6]}, "'<pad>' is a byte"),
    ],
)
def test_settings_that_are_not_obeyed_are_refused_by_name(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(CheckpointError, match=says) as caught:
        text(**settings)

    assert caught.value.message.startswith("m.gguf: ")


@pytest.mark.parametrize("key", ["add_eos_token", "add_sep_token", "add_space_prefix", "remove_extra_whitespaces"])
def test_settings_that_are_off_are_accepted(key: str) -> None:
    assert text(**{key: False}) == text()
