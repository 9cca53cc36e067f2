"""Locations: every value of a JSON text is found where it is."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kern.manifest.diagnostics import MAX_NAME, Diagnostic, pointer
from kern.manifest.source import Source

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def paths(value: Any, here: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], Any]]:
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [(here, value), *(found for key, item in inner for found in paths(item, (*here, key)))]


@given(JSON, st.sampled_from([None, 0, 1, 3]), st.booleans())
def test_every_value_is_found_where_it_is(value: Any, indent: int | None, ascii_only: bool) -> None:
    source = Source(json.dumps(value, indent=indent, ensure_ascii=ascii_only))
    expected = paths(value)
    assert set(source.spans) == {path for path, _ in expected}
    for path, item in expected:
        start, end = source.span(path)
        assert json.loads(source.text[start:end]) == item


@given(JSON, st.data())
def test_line_and_column_lead_back_to_the_place(value: Any, data: st.DataObject) -> None:
    source = Source(json.dumps(value, indent=1, ensure_ascii=False))
    path = data.draw(st.sampled_from(sorted(source.spans, key=repr)))
    location = source.locate(Diagnostic("K0000", path, "", ""))
    lines = source.text.split("\n")
    offset = sum(len(line) + 1 for line in lines[: location.line - 1]) + location.column - 1
    assert offset == source.span(path)[0]
    assert source.line(location.line) == lines[location.line - 1].rstrip("\r")


def test_columns_count_code_points() -> None:
    source = Source('{"ä𝄞": 1,\n  "b": [2, 3]}')
    assert (source.locate(Diagnostic("K0000", ("ä𝄞",), "", ""))) == source.location(7)
    found = source.locate(Diagnostic("K0000", ("b", 1), "", ""))
    assert (found.line, found.column) == (2, 12)


def test_a_key_can_be_meant_and_the_second_of_two_equal_ones() -> None:
    source = Source('{"a": 1, "a": 2}')
    second = Diagnostic("K0111", ("a",), "", "", anchor="key", occurrence=1)
    assert source.locate(second).column == 10


def test_pointers_escape_as_rfc_6901_says() -> None:
    assert pointer(("a/b", "m~n", 0, "")) == "/a~1b/m~0n/0/"
    assert pointer(()) == ""


def test_the_pointer_of_an_overlong_key_is_cut_so_that_errors_inside_it_do_not_repeat_it() -> None:
    assert pointer(("n" * MAX_NAME, "/" * MAX_NAME)) == "/" + "n" * MAX_NAME + "/" + "~1" * MAX_NAME
    assert pointer(("n" * (MAX_NAME + 1), 0)) == "/" + "n" * MAX_NAME + "…/0"
