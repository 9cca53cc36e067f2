"""Reading a manifest: from bytes to a `Manifest`, or to every error in its form (rule 1)."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from kern.manifest import codes
from kern.manifest.bounds import OPERATIONS, oversized
from kern.manifest.counts import counted
from kern.manifest.diagnostics import MAX_NAME, Diagnostic, Path
from kern.manifest.expressions import INT_LIMIT
from kern.manifest.source import Source
from kern.manifest.structure import error_path, structural_error
from kern.manifest.types import VERSION, Manifest

MAX_BYTES = 8 * 2**20
"""Largest manifest that is read. One of 1,300 dispatches takes under 300 KiB."""

MAX_VALUES = 250_000
"""Most members and elements, as commas count them. One of 1,300 dispatches has 30,000."""

MAX_NESTING = 64
"""Deepest nesting of objects and arrays. The form of a manifest takes 8 levels, an expression 2 per operation."""

MAX_ERRORS = 1000
"""Most errors of form that are reported for one file."""

MAX_TERMS = 64
"""Most numbers and symbols in one expression, or in a shape's dimensions together."""

_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"')
_STRING_OR_NUMBER = re.compile(_STRING.pattern + r"|NaN|-?Infinity|-?\d[\d.eE+-]*")
_STRING_OR_BRACKET = re.compile(_STRING.pattern + r"|[\[\]{}]")
_HALF = r"[0-9a-fA-F]{2}"
_SURROGATE = re.compile(
    rf"\\(?:u[dD][89abAB]{_HALF}\\u[dD][c-fC-F]{_HALF}|(?P<lone>u[dD][89a-fA-F]{_HALF})|.)", re.DOTALL
)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DEPTH = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading: a manifest or diagnostics, and the text that they point into."""

    manifest: Manifest | None
    diagnostics: tuple[Diagnostic, ...]
    source: Source


def read(data: bytes) -> Reading:
    """Read a manifest's bytes. Every error of form is a diagnostic; nothing is raised."""
    if (too_large := _too_large(data)) is not None:
        return Reading(None, (too_large,), Source(""))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        not_utf8 = codes.NOT_UTF8.at((), f"byte {error.start} is not UTF-8", "save the file as UTF-8")
        return Reading(None, (replace(not_utf8, offset=len(before)),), Source(data.decode(errors="replace")))
    source = Source(text)
    if _nesting(data) > MAX_NESTING:
        return Reading(None, (_too_deep(text),), source)
    scan = _Scan()
    try:
        document = scan.load(text)
    except json.JSONDecodeError as error:
        return Reading(None, (_not_json(text, error),), source)
    if not scan.numbers and (other := other_version(_version(document))) is not None:
        return Reading(None, (other,), source)
    suspect = scan.suspect(text)
    unfit = itertools.chain(
        _repeated(source) if scan.repeats else (),
        _unreadable(source) if suspect else (),
        oversized(document, MAX_NAME, MAX_TERMS) if scan.oversized else (),
    )
    found = list(itertools.islice(unfit, MAX_ERRORS))
    more = sum(1 for _ in unfit)
    if scan.oversized and found:
        return Reading(None, _bounded(found, more, source), source)
    readable = _readable(text) if suspect else text
    manifest, structural, others = _structure(readable, source, document, {one.path for one in found})
    found += structural
    if found:
        return Reading(None, _bounded(found, more + others, source), source)
    return Reading(manifest, (), source)


def other_version(version: int) -> Diagnostic | None:
    """The error in a manifest whose version is not ours."""
    if version == VERSION:
        return None
    message = f"the manifest has format version {version}, and this kern reads version {VERSION}"
    older = "build the folder again with this kern"
    help = older if version < VERSION else f"use a newer kern, or {older}"
    return codes.VERSION_UNKNOWN.at(("meta", "version"), message, help)


def _version(document: Any) -> int:
    """The version in a document; ours where it does not say."""
    meta = document.get("meta") if isinstance(document, dict) else None
    version = meta.get("version") if isinstance(meta, dict) else None
    return version if type(version) is int and abs(version) < INT_LIMIT else VERSION


def _too_large(data: bytes) -> Diagnostic | None:
    bounds = ("bytes", len(data), MAX_BYTES), ("values", data.count(b","), MAX_VALUES)
    for what, found, most in bounds:
        if found > most:
            message = f"the file has {found:,} {what}; the limit is {most:,}"
            help = "a manifest holds no data: put constants in the weights file"
            return replace(codes.TOO_LARGE.at((), message, help), offset=0)
    return None


def _bounded(found: list[Diagnostic], more: int, source: Source) -> tuple[Diagnostic, ...]:
    """The first errors in the order of the text, and the number of the others; `more` are not in `found`."""
    ordered = sorted(found, key=source.offset)
    more += len(ordered[MAX_ERRORS:])
    if not more:
        return tuple(ordered)
    message = f"{counted(more, 'more error')} of form after the first {MAX_ERRORS:,}"
    last = replace(ordered[:MAX_ERRORS][-1], code=codes.TOO_MANY.id, message=message, help="fix these first")
    return (*ordered[:MAX_ERRORS], last)


def _not_json(text: str, error: json.JSONDecodeError) -> Diagnostic:
    offset = min(error.pos, max(len(text) - 1, 0))
    if text.startswith("\ufeff"):
        marked = codes.NOT_JSON.at((), "the file begins with a byte-order mark", "save it as UTF-8 without one")
        return replace(marked, offset=0)
    reason = error.msg[0].lower() + error.msg[1:].removesuffix(" at")
    return replace(codes.NOT_JSON.at((), f"not JSON: {reason}", "see RFC 8259 for the form"), offset=offset)


def _nesting(data: bytes) -> int:
    """How deeply objects and arrays are nested, as far as the bytes are JSON.

    Without escaped quotes, every second piece between quotes is outside strings.
    """
    pieces = data.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    brackets = b"".join(pieces[::2]).translate(None, _NOT_BRACKETS)
    return max(itertools.accumulate(map(_DEPTH.__getitem__, brackets)), default=0)


def _too_deep(text: str) -> Diagnostic:
    """The error where nesting first exceeds the bound."""
    steps = {"[": 1, "{": 1, "]": -1, "}": -1}
    marks = [match for match in _STRING_OR_BRACKET.finditer(text) if match.group() in steps]
    depths = itertools.accumulate(steps[match.group()] for match in marks)
    deep = next(match.start() for match, depth in zip(marks, depths, strict=True) if depth > MAX_NESTING)
    message = f"objects and arrays are nested more than {MAX_NESTING} deep"
    return replace(codes.TOO_DEEP.at((), message, "no part of a manifest needs such nesting"), offset=deep)


class _Scan:
    """One pass of Python's JSON reader that notes what pydantic would accept, or fail on."""

    def __init__(self) -> None:
        self.repeats = False
        self.numbers = False
        self.oversized = False
        self._terms: dict[int, int] = {}

    def load(self, text: str) -> Any:
        return json.loads(
            text,
            object_pairs_hook=self._object,
            parse_int=self._int,
            parse_float=self._float,
            parse_constant=self._constant,
        )

    def suspect(self, text: str) -> bool:
        return self.numbers or re.search(r"\\u[dD][89a-fA-F]", text) is not None

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            self.repeats = True
        if len(pairs) == 1 and pairs[0][0] in OPERATIONS:
            # An operand lives as long as the document, unless its key is repeated, so its id identifies it.
            self._terms[id(members)] = self._sum(pairs[0][1])
        elif "shape" in members:
            self._sum(members["shape"])
        for name in members:
            if len(name) > MAX_NAME:
                self.oversized = True
        return members

    def _sum(self, operands: Any) -> int:
        """The terms of an expression or a shape; where there are too many, `oversized` reports it."""
        terms = sum(self._terms.get(id(one), 1) for one in operands) if isinstance(operands, list) else 1
        self.oversized |= terms > MAX_TERMS
        return terms

    def _int(self, digits: str) -> int:
        if len(digits) < 20:
            return int(digits)
        self.numbers = True
        return 0

    def _float(self, digits: str) -> float:
        value = float(digits)
        self.numbers |= not math.isfinite(value)
        return value

    def _constant(self, name: str) -> int:
        self.numbers = True
        return 0


def _repeated(source: Source) -> Iterator[Diagnostic]:
    for path, spans in source.spans.items():
        for occurrence in range(1, len(spans)):
            if spans[occurrence].key is None or spans[occurrence].key == spans[occurrence - 1].key:
                continue
            error = codes.DUPLICATE_KEY.at(
                path,
                f"duplicate key `{path[-1]}`",
                "remove or rename one of the two",
                anchor="key",
            )
            yield replace(error, occurrence=occurrence)


def _bad_number(token: str) -> str | None:
    if token in ("NaN", "Infinity", "-Infinity"):
        return f"{token} is not a number"
    if re.fullmatch(r"-?\d{20,}", token):
        return f"an integer of {len(token.lstrip('-'))} digits does not fit in 64 bits"
    if re.fullmatch(r"-?\d[\d.eE+-]*", token) and not math.isfinite(float(token)):
        return f"{token[:24]} is too large for a number"
    return None


def _lone_surrogates(text: str, start: int, end: int) -> Iterator[int]:
    return (match.start() for match in _SURROGATE.finditer(text, start, end) if match["lone"])


def _unreadable(source: Source) -> Iterator[Diagnostic]:
    """Numbers that are not finite or too large, and strings with half a surrogate pair."""
    for path, spans in source.spans.items():
        for span in spans:
            first = source.text[span.start]
            if first not in '"[{' and (message := _bad_number(source.text[span.start : span.end])):
                error = codes.NUMBER.at(path, message, "write a finite number within 64 bits")
                yield replace(error, offset=span.start)
            starts = [span.start] if first == '"' else []
            for start in starts if span.key is None else [span.key, *starts]:
                string = _STRING.match(source.text, start)
                assert string is not None
                for offset in _lone_surrogates(source.text, *string.span()):
                    error = codes.SURROGATE.at(path, "half of a surrogate pair", "write the character itself")
                    yield replace(error, offset=offset)


def _readable(text: str) -> str:
    """The text with those replaced by valid ones of the same length, so that the rest is checked too."""

    def harmless(match: re.Match[str]) -> str:
        token = match.group()
        if token[0] != '"':
            return "0".ljust(len(token)) if _bad_number(token) else token
        return _SURROGATE.sub(whole, token)

    def whole(match: re.Match[str]) -> str:
        return "\\u003f" if match["lone"] else match[0]

    return _STRING_OR_NUMBER.sub(harmless, text)


def _structure(
    text: str, source: Source, document: Any, reported: set[Path]
) -> tuple[Manifest | None, list[Diagnostic], int]:
    """The manifest, or the errors in its form at paths not yet `reported`, and how many more there are."""
    try:
        return Manifest.model_validate_json(text), [], 0
    except ValidationError as error:
        every = error.errors(include_url=False, include_input=False)
        new = [one for one in every if (path := error_path(one, document)) in source.spans and path not in reported]
        return None, [structural_error(one, document) for one in new[:MAX_ERRORS]], len(new[MAX_ERRORS:])
