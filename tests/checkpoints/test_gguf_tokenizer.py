"""Tokenizers of GGUF files give the ids that the original tokenizers give, on a page of mixed text."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers, trainers

from kern.checkpoints.checkpoint import CheckpointError, TextSource
from kern.checkpoints.gguf_checkpoint import GgufCheckpoint
from kern.checkpoints.gguf_text import text_of_gguf
from kern.checkpoints.gguf_tokenizer import PRE_TOKENIZERS
from kern.text.tokenizer_file import TokenizerError, TokenizerFile
from support.gguf_vocabularies import merges_of, vocabulary_of, write_gguf

SAMPLES = Path(__file__).parents[1] / "samples"
ORIGINALS = os.environ.get("KERN_TOKENIZERS")
"""A folder of original tokenizers: tokenizer.json in llama2, llama3 and qwen3; encoder.json and vocab.bpe in gpt2."""

WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBERS| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(expression: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


def byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}


# The sections of the models' own tokenizer.json: Meta-Llama-3, Qwen3, GPT-2 and SmolLM.
SECTIONS: dict[str, dict[str, Any]] = {
    "llama-bpe": {
        "pre_tokenizer": sequence(split(WORDS.replace("NUMBERS", r"\p{N}{1,3}")), byte_level(False)),
        "ignore_merges": True,
    },
    "qwen2": {
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": sequence(split(WORDS.replace("NUMBERS", r"\p{N}")), byte_level(False)),
    },
    "gpt-2": {"pre_tokenizer": byte_level(True)},
    "smollm": {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": True}, byte_level(True))},
}


def page() -> str:
    return (SAMPLES / "mixed-text.txt").read_bytes().decode()


@cache
def committed_ids(name: str) -> list[int]:
    ids: list[int] = json.loads((SAMPLES / "mixed-text-ids.json").read_text())[name]["ids"]
    return ids


@cache
def trained(pre: str) -> Library:
    """A tokenizer with the sections of a model's own and a vocabulary trained on the page."""
    sections = SECTIONS[pre]
    empty = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": sections.get("normalizer"),
        "pre_tokenizer": sections["pre_tokenizer"],
        "decoder": byte_level(True),
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }
    library = Library.from_str(json.dumps(empty))
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>"],
    )
    library.train_from_iterator([page()], trainer)
    document = json.loads(library.to_str())
    document["model"]["ignore_merges"] = sections.get("ignore_merges", False)
    return Library.from_str(json.dumps(document))


def read_from_gguf(path: Path, library: Library, pre: str, **settings: Any) -> TextSource:
    document = json.loads(library.to_str())
    tokens, types = vocabulary_of(document)
    write_gguf(
        path, "gpt2", tokens, types, pre=pre, merges=merges_of(document), settings={"bos_token_id": 0} | settings
    )
    return GgufCheckpoint(path).text


def encoded(text: TextSource, prompt: str) -> list[int]:
    assert text.tokenizer_json is not None
    return TokenizerFile(text.tokenizer_json).encode(prompt)


@pytest.mark.parametrize("pre", SECTIONS)
def test_a_page_has_the_ids_that_the_models_own_settings_give(tmp_path: Path, pre: str) -> None:
    original = trained(pre)
    text = read_from_gguf(tmp_path / "m.gguf", original, pre)
    assert text.tokenizer_json is not None
    file = TokenizerFile(text.tokenizer_json)
    ids = original.encode(page(), add_special_tokens=False).ids

    assert file.encode(page()) == ids
    assert file.decode(ids) == original.decode(ids)


def test_each_pre_tokenizer_splits_the_page_in_its_own_way(tmp_path: Path) -> None:
    document = json.loads(trained("gpt-2").to_str())
    tokens, types = vocabulary_of(document)
    metadata = metadata_of(tokens, types, merges_of(document))
    texts = {pre: text_of_gguf(metadata | {"tokenizer.ggml.pre": pre}, Path("m.gguf")) for pre in PRE_TOKENIZERS}
    ids = {pre: tuple(encoded(text, page())) for pre, text in texts.items()}

    assert ids["llama-bpe"] == ids["llama3"] == ids["llama-v3"]
    assert len(set(ids.values())) == len(PRE_TOKENIZERS) - 2


def test_the_default_pre_tokenizer_splits_as_in_llama_cpp(tmp_path: Path) -> None:
    # llama.cpp: punctuation on its own, then GPT-2's words, then digits from the left in threes.
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: id for id, token in enumerate([*alphabet, "Ġa", "..", "12", "123", "4", "Ġ."]) if token}
    merges = [("Ġ", "a"), (".", "."), ("1", "2"), ("12", "3"), ("Ġ", ".")]
    library = Library(models.BPE(vocab={t: i for i, t in enumerate(vocabulary)}, merges=merges))
    text = read_from_gguf(tmp_path / "m.gguf", library, "default")
    assert text.tokenizer_json is not None
    file = TokenizerFile(text.tokenizer_json)

    assert [file.token(id) for id in file.encode(" a.. 1234 .")] == ["Ġa", "..", "Ġ", "123", "4", "Ġ", "."]


def test_a_word_of_the_vocabulary_counts_before_its_merges_in_llama3_alone(tmp_path: Path) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: id for id, token in enumerate([*alphabet, "ab", "abc"])}
    library = Library(models.BPE(vocab=vocabulary, merges=[("a", "b")]))

    def tokens(pre: str) -> list[int]:
        return encoded(read_from_gguf(tmp_path / "m.gguf", library, pre), "abc")

    assert tokens("llama-bpe") == [vocabulary["abc"]]
    assert tokens("qwen2") == [vocabulary["ab"], vocabulary["c"]]


def test_a_sentencepiece_vocabulary_gives_the_ids_that_sentencepiece_gives(tmp_path: Path) -> None:
    sample = json.loads((SAMPLES / "sentencepiece.json").read_text())
    path = write_gguf(
        tmp_path / "m.gguf", "llama", sample["pieces"], sample["types"], pre="default", scores=sample["scores"]
    )
    text = GgufCheckpoint(path).text
    assert text.tokenizer_json is not None
    file = TokenizerFile(text.tokenizer_json)

    assert (text.bos, text.stop_ids) == (1, (2,))
    assert text.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    for case in sample["texts"]:
        if case["text"]:  # of an empty text transformers and llama.cpp make nothing, as SentencePiece does
            assert file.encode(case["text"]) == case["ids"]
            assert file.decode(case["ids"]) == case["text"]
    assert file.encode("") == []


def sentencepiece_text(**edits: Any) -> TextSource:
    """<unk>, <s>, </s>, an end of turn, a user's own token, two bytes, letters, and what merges make."""
    tokens = ["<unk>", "<s>", "</s>", "<eot>", "<tool>", "<0x0A>", "<0xC3>", "▁", "a", "b", "ab", "▁ab", "ba"]
    metadata = metadata_of(tokens, [2, 3, 3, 3, 4, 6, 6, *[1] * 6], None) | {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.scores": [0.0] * 7 + [-10.0] * 3 + [-2.0, -3.0, -1.0],
    }
    return text_of_gguf(metadata | {f"tokenizer.ggml.{key}": value for key, value in edits.items()}, Path("m.gguf"))


def metadata_of(tokens: list[str], types: list[int], merges: list[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 0,
    }
    return found if merges is None else found | {"tokenizer.ggml.merges": merges}


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        ("ab", [11]),  # ▁ab
        ("bab", [7, 12, 9]),  # of ba and ab the one of the higher score
        ("a\n", [7, 8, 5]),
        ("é", [7, 0]),  # C3 A9: one of its bytes is not a token
        ("éüa", [7, 0, 8]),  # unknown characters that follow each other are one
        ("ab<eot>ab<tool>ab", [11, 3, 11, 4, 11]),  # the space comes again after each added token
        (" ab", [7, 11]),
    ],
)
def test_sentencepiece_merges_by_score_and_falls_back_to_bytes(prompt: str, ids: list[int]) -> None:
    assert encoded(sentencepiece_text(), prompt) == ids


def test_no_space_is_put_first_where_the_file_says_so() -> None:
    text = sentencepiece_text(add_space_prefix=False)
    assert text.tokenizer_json is not None
    file = TokenizerFile(text.tokenizer_json)

    assert file.encode("ab") == [10]
    assert file.decode([11]) == " ab"


def test_bytes_that_are_written_as_normal_tokens_are_bytes() -> None:
    types = [2, 3, 3, 3, 4, 1, 1, *[1] * 6]

    assert encoded(sentencepiece_text(token_type=types), "a\n") == [7, 8, 5]


def test_an_ordinary_token_does_not_stand_for_unknown_characters() -> None:
    text = sentencepiece_text(token_type=[1, 3, 3, 3, 4, 6, 6, *[1] * 6])

    with pytest.raises(TokenizerError, match="a character that is not in the vocabulary"):
        encoded(text, "é")


def test_integer_scores_are_scores() -> None:
    scores = [0] * 7 + [-10] * 3 + [-2, -3, -1]

    assert sentencepiece_text(scores=scores) == sentencepiece_text()


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ({"scores": [-1000.0] * 13}, "the same score"),
        ({"scores": [float("nan")] * 13}, "is not a number"),
        ({"scores": [0.0]}, "1 scores for 13 tokens"),
        ({"scores": None}, "the GGUF has no tokenizer.ggml.scores"),
        ({"token_type": [2, 3, 3, 3, 4, 6, 6, 1, 1, 1, 5, 1, 1]}, "'ab' is marked as unused"),
        ({"token_type": [2, 3, 3, 3, 4, 6, 6, 1, 1, 1, 7, 1, 1]}, "'ab' has the unknown type 7"),
        ({"remove_extra_whitespaces": True}, "remove_extra_whitespaces"),
        ({"precompiled_charsmap": [1, 2]}, "precompiled_charsmap"),
    ],
)
def test_a_sentencepiece_vocabulary_that_would_be_read_wrongly_is_refused(edits: dict[str, Any], says: str) -> None:
    sentencepiece_text()
    with pytest.raises(CheckpointError, match=says) as caught:
        sentencepiece_text(**edits)

    assert caught.value.message.startswith("m.gguf: ")


@pytest.mark.parametrize("pre", ["tekken", "deepseek-llm", "llama4", "", None])
def test_an_unknown_pre_tokenizer_is_refused_by_name(pre: str | None) -> None:
    metadata = metadata_of(["a", "b", "ab"], [1, 1, 1], ["a b"])
    text_of_gguf(metadata, Path("m.gguf"))
    if pre is None:
        del metadata["tokenizer.ggml.pre"]
    else:
        metadata["tokenizer.ggml.pre"] = pre

    with pytest.raises(CheckpointError, match="does not name its pre-tok" if pre is None else f"pre-tokenizer {pre!r}"):
        text_of_gguf(metadata, Path("m.gguf"))


def test_kinds_of_tokens_are_kept() -> None:
    tokens = ["a", "b", "ab", "<turn>", "<tool>", "[PAD5]", "<unk>"]
    text = text_of_gguf(metadata_of(tokens, [1, 1, 1, 3, 4, 5, 2], ["a b"]), Path("m.gguf"))
    assert text.tokenizer_json is not None
    file = TokenizerFile(text.tokenizer_json)

    assert file.encode("ab<turn>ab<tool><unk>") == [2, 3, 2, 4, 6]
    assert file.decode([2, 3, 4, 5, 6]) == "ab<tool>"  # unused and special tokens are omitted


def test_smollm2_has_the_ids_of_its_own_tokenizer(smollm2: Path) -> None:
    file = TokenizerFile((smollm2 / "tokenizer.json").read_bytes())

    assert file.encode(page()) == committed_ids("smollm2")


def original(name: str) -> Library:
    assert ORIGINALS is not None
    folder = Path(ORIGINALS) / name
    if name != "gpt2":
        return Library.from_file(str(folder / "tokenizer.json"))
    merges = (folder / "vocab.bpe").read_text(encoding="utf-8").splitlines()[1:]
    vocabulary = json.loads((folder / "encoder.json").read_text())
    library = Library(models.BPE(vocab=vocabulary, merges=[tuple(merge.split(" ")) for merge in merges if merge]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.add_special_tokens(["<|endoftext|>"])
    return library


def llama2_from_gguf(path: Path, library: Library) -> TextSource:
    """Scores as in Llama 2's tokenizer.model: minus the rank, and runs of spaces last."""
    tokens, _ = vocabulary_of(json.loads(library.to_str()))
    types = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]

    def score(id: int, token: str) -> float:
        return 0.0 if id < 259 else -1e9 if len(token) > 1 and set(token) == {"▁"} else 259.0 - id

    scores = [score(id, token) for id, token in enumerate(tokens)]
    return GgufCheckpoint(write_gguf(path, "llama", tokens, types, pre="default", scores=scores)).text


READ: dict[str, Callable[[Path, Library], TextSource]] = {
    "llama2": llama2_from_gguf,
    "llama3": lambda path, library: read_from_gguf(path, library, "llama-bpe"),
    "qwen3": lambda path, library: read_from_gguf(path, library, "qwen2"),
    "gpt2": lambda path, library: read_from_gguf(path, library, "gpt-2"),
}


@pytest.mark.slow
@pytest.mark.skipif(ORIGINALS is None, reason="KERN_TOKENIZERS names no folder of original tokenizers")
@pytest.mark.parametrize("name", READ)
def test_original_vocabularies_give_their_own_ids_from_gguf(tmp_path: Path, name: str) -> None:
    library = original(name)
    text = READ[name](tmp_path / "m.gguf", library)

    assert library.encode(page(), add_special_tokens=False).ids == committed_ids(name)
    assert encoded(text, page()) == committed_ids(name)
