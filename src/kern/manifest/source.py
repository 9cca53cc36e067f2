"""Locations in a JSON text: the span of any path, and the line and column of a diagnostic."""

from __future__ import annotations

import bisect
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kern.manifest.diagnostics import Diagnostic, Path

_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


@dataclass(frozen=True, slots=True)
class Span:
    """The code points of a value; `key` is where the key of a member begins."""

    start: int
    end: int
    key: int | None


@dataclass(frozen=True, slots=True)
class Location:
    """Line and column, both from 1, in code points."""

    line: int
    column: int


@dataclass
class _Container:
    path: Path
    start: int
    key_start: int | None
    is_object: bool
    index: int = 0
    member: str | None = None
    member_start: int | None = None

    @property
    def child(self) -> Path:
        return (*self.path, self.member if self.is_object and self.member is not None else self.index)


def _members(text: str) -> Iterator[tuple[Path, Span]]:
    """Every value of a valid JSON text, inner ones first; equal keys yield one entry each."""
    stack: list[_Container] = []
    for match in _TOKEN.finditer(text):
        token, start = match.group(), match.start()
        top = stack[-1] if stack else None
        if token == ":":
            continue
        if token == ",":
            assert top is not None
            top.index, top.member = top.index + 1, None
            continue
        if token in "]}":
            closed = stack.pop()
            yield closed.path, Span(closed.start, match.end(), closed.key_start)
            continue
        if top is not None and top.is_object and top.member is None:
            top.member, top.member_start = json.loads(token) if "\\" in token else token[1:-1], start
            continue
        path, key_start = (top.child, top.member_start) if top is not None else ((), None)
        if token in "[{":
            stack.append(_Container(path, start, key_start, token == "{"))
        else:
            yield path, Span(start, match.end(), key_start)


class Source:
    """The text of a manifest. Locations are computed when first needed, so a valid manifest costs nothing."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def spans(self) -> Mapping[Path, Sequence[Span]]:
        """The spans of each path in a valid JSON text: several where keys are equal."""
        found: dict[Path, list[Span]] = {}
        for path, span in _members(self.text):
            found.setdefault(path, []).append(span)
        return found

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *itertools.accumulate(len(line) + 1 for line in self.text.split("\n"))]

    def span(self, path: Path) -> tuple[int, int]:
        """First and past-the-last code point of the value at `path`. Raises KeyError if there is none."""
        span = self.spans[path][-1]
        return span.start, span.end

    def location(self, offset: int) -> Location:
        """Line and column of a code point."""
        line = bisect.bisect_right(self._line_starts, offset) - 1
        return Location(line + 1, offset - self._line_starts[line] + 1)

    def offset(self, diagnostic: Diagnostic) -> int:
        """The code point that a diagnostic points at: of its path, or of the nearest parent that exists."""
        if diagnostic.offset is not None:
            return diagnostic.offset
        path = diagnostic.path
        while path and path not in self.spans:
            path = path[:-1]
        spans = self.spans.get(path)
        if spans is None:
            return 0
        span = spans[min(diagnostic.occurrence, len(spans) - 1)]
        at_key = diagnostic.anchor == "key" and path == diagnostic.path and span.key is not None
        return span.key if at_key and span.key is not None else span.start

    def locate(self, diagnostic: Diagnostic) -> Location:
        """Line and column of a diagnostic."""
        return self.location(self.offset(diagnostic))

    def line(self, number: int) -> str:
        """The text of a line, counted from 1, without its end."""
        return self.text[self._line_starts[number - 1] : self._line_starts[number] - 1].rstrip("\r")
