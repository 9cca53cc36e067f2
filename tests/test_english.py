"""Phrases that read like a translation do not come back, in code, documents or tests."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[1]
FOLDERS: Final = ("src", "docs", "tests", "examples", "benchmarks", "tools", "assets")
SUFFIXES: Final = {".py", ".md", ".c", ".h", ".cu", ".cuh", ".sh"}
ALLOWED: Final[frozenset[tuple[str, str]]] = frozenset()
"""Files and phrases, where the phrase is needed: a quotation, or a name of somebody else's."""

_UNITS: Final = (
    "blocks|bytes|calls|drafts|elements|GB|ids|kernels|launches|MB|microseconds|milliseconds|ms|nats|pages|rounds|rows"
    "|seconds|steps|texts|threads|times|tokens|us|µs"
)
_EACH: Final = "block|call|card|element|launch|layer|line|pass|round|row|second|sequence|step|text|thread|token"


class Phrase(NamedTuple):
    """A pattern, what to write instead, text in which it is found, and text in which it is not."""

    pattern: str
    instead: str
    found: str
    passed: str


PHRASES: Final = (
    Phrase(r"\banew\b", "again", "chosen anew", "a new one"),
    Phrase(r"\bmend(s|ed|ing)?\b", "fix", "the mended form", "recommended"),
    Phrase(
        r"(?<![Tt]here )(?<![Ww]here )\b(is|are|was|were) no (?!\w+er than|longer|more|less|such|different)[\w`]",
        "X is not a Y, or: unknown X", "`x` is no buffer", "there is no buffer; it is no longer than that",
    ),
    Phrase(
        rf"\b({_UNITS}) an? ({_EACH})\b(?! (gives|has|is|may|needs|takes)\b)",
        "per", "two tokens a round", "tokens per round; as a step; the tokens a round gives",
    ),
    Phrase(r"\btold (off|apart)\b", "distinguished", "they are told apart", "told"),
    Phrase(r"\bharsh(ly)?\b", "strict", "as harshly as a compiler", "strictly"),
    Phrase(r"\bstands? (in|at|behind|before|beside|there|where)\b", "is", "what stands in the file", "stands for"),
    Phrase(r"\bof (its|their|his) own\b(?! accord)", "its own", "a process of its own", "its own process"),
    Phrase(r"\b(this|that|these) very\b", "the same", "in this very process", "very long"),
    Phrase(r"\bbeside\b", "next to", "beside the file", "besides; on the side"),
    Phrase(r"\bhas none\b", "has no", "the folder has none", "none has"),
    Phrase(r"\bhas not(?=[.,;:)\"'`])", "does not have", "which the device has not.", "which has not been read."),
    Phrase(r"\b(is|are) told\b", "receives, or: is reported", "`progress` is told the bytes", "tells"),
    Phrase(r"\baffairs?\b", "decides", "the device's affair", "fair"),
    Phrase(r"\bwithout number\b", "unbounded", "values without number", "without a number"),
    Phrase(r"\bwritten half\b", "left half-written", "nothing is written half", "half-written"),
    Phrase(r"\basked for wrongly\b", "invalid", "a build that is asked for wrongly", "asked for"),
    Phrase(r"\bnothing is known of\b", "unknown", "nothing is known of it", "nothing is known about it"),
    Phrase(r"\b(held|holds?) (?:\w+ )?against\b", "compared with", "every claim is held against every pass", "held"),
)  # fmt: skip


class Text(NamedTuple):
    """A text as one line, without marks of comments; where each word begins in it, and its line in the file."""

    flat: str
    starts: list[int]
    lines: list[int]


def flattened(text: str) -> Text:
    words = [
        (word, number)
        for number, line in enumerate(text.split("\n"), 1)
        for word in re.sub(r"^\s*(#|//|\*)\s", "", line).split()
    ]
    starts = [0, *accumulate(len(word) + 1 for word, _ in words)]
    return Text(" ".join(word for word, _ in words), starts, [number for _, number in words])


def matches(phrase: Phrase, text: Text) -> Iterator[tuple[int, str]]:
    """The line and the words of each match."""
    for match in re.finditer(phrase.pattern, text.flat):
        yield text.lines[bisect_right(text.starts, match.start()) - 1], match.group()


@cache
def sources() -> dict[str, Text]:
    paths = [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))]
    return {
        str(path.relative_to(ROOT)): flattened(path.read_text(encoding="utf-8"))
        for path in paths
        if path.suffix in SUFFIXES and path != Path(__file__)
    }


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase.found)
def test_a_phrase_does_not_come_back(phrase: Phrase) -> None:
    hits = [
        f"{name}:{line}: {words}"
        for name, text in sources().items()
        if (name, phrase.found) not in ALLOWED
        for line, words in matches(phrase, text)
    ]
    assert hits == [], f"write: {phrase.instead}\n" + "\n".join(hits)


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase.found)
def test_a_phrase_is_found_where_it_is_and_nowhere_else(phrase: Phrase) -> None:
    broken = phrase.found.replace(" ", "\n    # ")
    assert [line for line, _ in matches(phrase, flattened(f"first\n{phrase.found}"))] == [2]
    assert [*matches(phrase, flattened(broken))] != []
    assert [*matches(phrase, flattened(phrase.passed))] == []
