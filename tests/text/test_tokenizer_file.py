"""What a tokenizer.json cannot encode or decode is one error of one line, and nothing grows without a bound."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from kern.text.panics import panics_unprinted
from kern.text.tokenizer_file import FACTOR, MAX_BYTES, SHORT, TokenizerError, TokenizerFile, with_tokens

MULTIPLIES = normalizers.Sequence([normalizers.Replace("a", "a" * 1000)] * 4)


def bpe(letters: str = "abc", **options: Any) -> Library:
    return Library(models.BPE(vocab={letter: id for id, letter in enumerate(letters)}, merges=[], **options))


def read(library: Library) -> TokenizerFile:
    return TokenizerFile(library.to_str())


def word_level() -> Library:
    library = Library(models.WordLevel({"a": 0}, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    return library


def unigram() -> Library:
    return Library(models.Unigram([("a", -1.0)], unk_id=None))


def endless_expression() -> Library:
    library = bpe()
    library.pre_tokenizer = pre_tokenizers.Split(Regex("(a|aa)+$"), "isolated")
    return library


def stripping() -> Library:
    library = bpe()
    library.decoder = decoders.Strip("a", 0, 1000)
    return library


def multiplying(part: str) -> Library:
    library = bpe()
    if part == "normalizer":
        library.normalizer = MULTIPLIES
    else:
        library.decoder = decoders.Sequence([decoders.Replace("a", "a" * 1000)] * 4)
    return library


ENCODE_FAILURES: list[tuple[Callable[[], Library], str, str]] = [
    (word_level, "a b", r"cannot encode this text: WordLevel error: Missing \[UNK\] token"),
    (unigram, "xyz", "cannot encode this text: Encountered an unknown token"),
    (bpe, "axb", "cannot encode this text: it has a character that is not in the vocabulary"),
    (endless_expression, "a" * 40 + "b", "cannot encode this text: Onig: Regex search error: retry-limit-in-match"),
    (
        lambda: multiplying("normalizer"),
        "a",
        "the normalizer of tokenizer.json may expand this text to 1,000,000 bytes",
    ),
]


@pytest.mark.parametrize(("library", "text", "says"), ENCODE_FAILURES)
def test_a_text_that_cannot_be_encoded_gives_one_line(
    library: Callable[[], Library], text: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TokenizerError, match=says) as caught:
        read(library()).encode(text)

    assert "\n" not in caught.value.message
    assert (caught.value.exit_code, capfd.readouterr().err) == (2, "")


@pytest.mark.parametrize(
    ("library", "says"),
    [
        (stripping, "tokenizer.json cannot decode these ids: "),
        (
            lambda: multiplying("decoder"),
            r"the decoder of tokenizer\.json may expand this text to 2,000,000,000,000 bytes",
        ),
    ],
)
def test_ids_that_cannot_be_decoded_give_one_line(
    library: Callable[[], Library], says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TokenizerError, match=says) as caught:
        read(library()).decode([0, 0])

    assert "\n" not in caught.value.message
    assert capfd.readouterr().err == ""


def test_what_a_normalizer_leaves_alone_is_encoded() -> None:
    assert read(multiplying("normalizer")).encode("b") == [1]


@pytest.mark.parametrize(
    "normalizer",
    [
        normalizers.Replace(Regex(""), "a" * 2**20),
        normalizers.Replace("", "a" * 2**20),
        normalizers.Prepend("a" * 2**20),
        normalizers.Sequence([normalizers.Prepend("b"), normalizers.Replace("b", "a" * 2**20)]),
    ],
)
def test_every_way_to_grow_has_a_bound(normalizer: Any) -> None:
    library = bpe()
    library.normalizer = normalizer

    with pytest.raises(TokenizerError, match=r"the normalizer of tokenizer\.json may"):
        read(library).encode("c" * 300)


def test_sequences_in_sequences_have_a_bound() -> None:
    nested = {"type": "Sequence", "normalizers": [json.loads(MULTIPLIES.__getstate__())]}
    content = json.dumps(json.loads(bpe().to_str()) | {"normalizer": nested})

    with pytest.raises(TokenizerError, match=r"the normalizer of tokenizer\.json may"):
        TokenizerFile(content).encode("a")


@pytest.mark.parametrize(
    ("normalizer", "text"),
    [
        (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), "b " * 100_000),
        (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), " " * 100_000),
        (normalizers.NFKC(), "\ufdfa" * 30_000),
        (
            normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]),
            "É " * 50_000,
        ),
        (normalizers.BertNormalizer(), "É你" * 20_000),
        (normalizers.Sequence([normalizers.Replace(Regex(" {2,}"), " ")] * 8), "b  " * 100_000),
        (normalizers.Replace(Regex("\n"), "▁" * 99), ("b" * 99 + "\n") * 1_000),
    ],
)
def test_ordinary_normalizers_take_long_texts(normalizer: Any, text: str) -> None:
    library = bpe(unk_token="a", fuse_unk=True)
    library.normalizer = normalizer

    assert read(library).encode(text)


REPEATED = normalizers.Sequence([normalizers.Replace("a", "a" * 99)] * 3)


@pytest.mark.parametrize(
    ("normalizer", "text", "says"),
    [
        (REPEATED, "a" * 40 + "b", "may expand this text to 392,041 bytes; the limit is 262,144"),
        (REPEATED, "a" * 20_000, "may expand this text to 1,980,000 bytes; the limit is 320,000"),
        (normalizers.Replace(Regex("[ac]"), "b" * 400_000), "abc", "may expand this text to 800,001 bytes"),
        (normalizers.Sequence([normalizers.Replace("a", "\ufdfa" * 20_000), normalizers.NFKC()]), "aaa",
         "bytes; the limit is 262,144"),
    ],
)  # fmt: skip
def test_a_text_grows_no_more_than_its_length_allows(normalizer: Any, text: str, says: str) -> None:
    library = bpe()
    library.normalizer = normalizer

    with pytest.raises(TokenizerError, match=says):
        read(library).encode(text)


def test_a_short_text_takes_little_memory_whatever_the_tokenizer(tmp_path: Path) -> None:
    """The most that is let through, in pieces of one letter: what takes the library most for each byte."""
    library = Library(models.Unigram([("1", -1.0), ("▁", -1.0)], unk_id=0))
    library.normalizer = normalizers.Replace("a", "1" * 2**18)
    library.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.Metaspace()])
    (tmp_path / "tokenizer.json").write_text(library.to_str())
    program = (
        "import re, sys\nfrom kern.text.tokenizer_file import TokenizerFile\n"
        "print(len(TokenizerFile(open(sys.argv[1]).read()).encode('a')))\n"
        "print(re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "tokenizer.json")], capture_output=True, text=True, timeout=60
    )
    ids, kibibytes = map(int, done.stdout.split())

    assert ids == 2**19
    assert kibibytes < 2**18


def test_added_tokens_that_the_normalizer_makes_too_long_are_refused_before_they_are() -> None:
    library = bpe()
    library.add_tokens([AddedToken("a", normalized=True)])
    document = json.loads(library.to_str()) | {"normalizer": json.loads(MULTIPLIES.__getstate__())}

    for text in (json.dumps(document), json.dumps(document).replace("normalized", r"\u006eormalized")):
        with pytest.raises(TokenizerError, match=r"the normalizer of tokenizer\.json may"):
            TokenizerFile(text)


@pytest.mark.parametrize("content", [None, 1, ["a"], {"a": 1}])
def test_an_added_token_that_is_not_text_is_refused(content: Any) -> None:
    library = bpe()
    library.add_tokens([AddedToken("a", normalized=True)])
    document = json.loads(library.to_str()) | {"normalizer": json.loads(MULTIPLIES.__getstate__())}
    document["added_tokens"][0]["content"] = content

    with pytest.raises(TokenizerError, match="is not a tokenizer of the tokenizers library"):
        TokenizerFile(json.dumps(document))


def test_tokens_to_be_added_that_the_normalizer_makes_too_long_are_refused() -> None:
    with pytest.raises(TokenizerError, match=r"the normalizer of tokenizer\.json may"):
        with_tokens(multiplying("normalizer").to_str().encode(), [("a", {"normalized": True})])


def test_an_added_token_that_the_normalizer_makes_empty_is_refused() -> None:
    library = bpe()
    library.normalizer = normalizers.Strip()
    library.add_tokens([AddedToken(" ", normalized=True)])

    with pytest.raises(TokenizerError, match="makes the added token ' ' empty"):
        read(library)


def test_saved_truncation_and_padding_are_switched_off() -> None:
    library = bpe()
    library.enable_truncation(max_length=2)
    library.enable_padding(length=10**9, pad_id=2, pad_token="c", direction="left")
    file = read(library)

    assert file.encode("abcabc") == [0, 1, 2, 0, 1, 2]
    assert file.pad_token == "c"


def test_a_tokenizer_that_drops_merges_at_random_is_refused() -> None:
    with pytest.raises(TokenizerError, match="drops merges at random"):
        read(bpe(dropout=0.5))


@pytest.mark.parametrize(
    "content",
    ["{}", "[", "\ud7ff", '{"version": "1.0", "model": {"type": "BPE", "vocab": {"h": 0}, "merges": [["h", "x"]]}}'],
)
def test_what_is_not_a_tokenizer_is_refused(content: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TokenizerError, match="is not a tokenizer of the tokenizers library") as caught:
        TokenizerFile(content)

    assert "\n" not in caught.value.message
    assert capfd.readouterr().err == ""


def test_a_deep_file_is_refused() -> None:
    deep: Any = {"type": "NFC"}
    for _ in range(400):
        deep = {"type": "Sequence", "normalizers": [deep]}
    content = json.dumps(json.loads(bpe().to_str()) | {"normalizer": deep})

    with pytest.raises(TokenizerError, match="recursion limit"):
        TokenizerFile(content)


def test_tokens_that_are_there_change_nothing() -> None:
    library = bpe()
    library.add_special_tokens([AddedToken("<end>", rstrip=True)])
    content = library.to_str().encode()

    assert with_tokens(content, [("<end>", {"rstrip": True, "normalized": False, "special": True})]) == content


def test_what_native_code_prints_is_kept_without_a_panics_report(capfd: pytest.CaptureFixture[str]) -> None:
    with panics_unprinted():
        os.write(2, b"a note\n")
    with panics_unprinted():
        os.write(
            2, b"before\n\nthread '<unnamed>' (7) panicked at src/lib.rs:1:2:\nreason\nstack backtrace:\n   0: f\n"
        )

    assert capfd.readouterr().err == "a note\nbefore\n"


def test_stderr_of_other_threads_is_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[bool] = []

    def work() -> None:
        before = os.fstat(2)
        with panics_unprinted():
            seen.append(os.path.samestat(before, os.fstat(2)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert seen == [True]


def test_a_closed_stderr_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(bpe().to_str())
    program = (
        "import os, sys; os.close(2)\nfrom kern.text.tokenizer_file import TokenizerFile\n"
        "print(TokenizerFile(open(sys.argv[1]).read()).encode('abc'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "tokenizer.json")], capture_output=True, text=True, timeout=60
    )

    assert done.stdout == "[0, 1, 2]\n"


def test_the_bounds_in_the_guide_are_those_that_hold() -> None:
    page = (Path(__file__).parents[2] / "docs" / "text.md").read_text()

    assert f"{FACTOR} times its bytes, or to {SHORT:,} bytes" in page
    assert f"{MAX_BYTES:,}" in page
