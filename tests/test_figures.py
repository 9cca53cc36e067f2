"""Every result says when, where and of what it was measured, and documents quote the results as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.figures import QUOTES, Quote

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
NUMBER = r"([\d,]+(?:\.\d+)?)"


@pytest.mark.parametrize("path", sorted(RESULTS.iterdir()), ids=lambda path: path.stem)
def test_a_result_says_when_where_and_of_what_it_is(path: Path) -> None:
    found = json.loads(path.read_text())
    assert list(found)[:5] == ["date", "machine", "commit", "versions", "command"]
    assert re.match(r"20\d\d-\d\d-\d\d\b", found["date"])
    assert found["machine"]
    assert found["commit"]
    assert found["versions"]
    assert all(isinstance(version, str) and version for version in found["versions"].values())
    assert found["command"]


@pytest.mark.parametrize("quote", QUOTES, ids=lambda quote: f"{quote.document}: {quote.text[:40]}")
def test_a_figure_is_what_was_measured(quote: Quote) -> None:
    shown = figures(quote, (ROOT / quote.document).read_text())
    result = json.loads((RESULTS / f"{quote.result}.json").read_text())
    assert len(shown) == len(quote.places)
    for text, place in zip(shown, quote.places, strict=True):
        assert text_is(text, number(result, place), 1e-3 if " ^" in place else 0), (text, place)


@pytest.mark.parametrize("document", ["README.md", *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))])
def test_a_document_that_refers_to_a_result_quotes_it(document: str) -> None:
    linked = set(re.findall(r"benchmarks/results/([\w-]+)\.json", (ROOT / document).read_text()))
    assert linked <= {quote.result for quote in QUOTES if quote.document == document}


def test_a_figure_that_differs_is_found() -> None:
    quote = Quote("page", "{} ms\nfor {} of {}%", "result", ("a/0/b", "c", "share *100"))
    assert figures(quote, "takes **2.45** ms for\n  1,234 of 50.0%") == ("2.45", "1,234", "50.0")
    with pytest.raises(AssertionError, match="does not say"):
        figures(quote, "takes 2.45 s")
    result = {"a": [{"b": 2.4549}], "c": 1234, "share": 0.5, "list": [3, 1, 2]}
    places = {"a/0/b": 2.4549, "c": 1234, "share *100": 50, "c ^2468": 2, "list min": 1, "list max": 3, "list/2": 2}
    assert {place: number(result, place) for place in places} == pytest.approx(places)
    assert text_is("2.45", 2.4549)
    assert text_is("3.189", 3.1885)
    assert text_is("1,234", 1234.4)
    assert not text_is("2.46", 2.4549)
    assert not text_is("2.4", 2.4549)
    assert not text_is("1,235", 1234.4)


def figures(quote: Quote, text: str) -> tuple[str, ...]:
    """The numbers at the places of the quote's text in a document, whatever the breaks of its lines."""
    words = r"\s+".join(re.escape(word).replace(r"\{\}", rf"\**{NUMBER}\**") for word in quote.text.split())
    found = re.search(words, text)
    assert found is not None, f"{quote.document} does not say: {quote.text}"
    return found.groups()


def number(result: Any, place: str) -> float:
    """The number at a place: `a/b`, `a/b *f` multiplied, `a/b ^f` the factor divided by it, `a/b min` of a list."""
    keys, _, change = place.partition(" *") if " *" in place else place.partition(" ^")
    listed = re.fullmatch(r"(.*) (min|max)", keys)
    for key in (listed[1] if listed else keys).split("/"):
        result = result[int(key)] if isinstance(result, list) else result[key]
    value = float({"min": min, "max": max}[listed[2]](result) if listed else result)
    if not change:
        return value
    return value * float(change) if " *" in place else float(change) / value


def text_is(text: str, value: float, tolerance: float = 0) -> bool:
    """Whether a figure is a number, rounded to as many decimals as the figure has.

    With a tolerance, a share of it: that to which the number itself was rounded before more was computed from it.
    """
    half = 0.5 * 10.0 ** -len(text.partition(".")[2])
    return abs(float(text.replace(",", "")) - value) <= half * (1 + 1e-9) + tolerance * value
