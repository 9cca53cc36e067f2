"""Reading a manifest: from bytes to a `Manifest`, or to every fault of its form (rule 1)."""

from __future__ import annotations

import functools
import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kern.manifest import codes
from kern.manifest.diagnostics import Diagnostic, Path
from kern.manifest.expressions import TAG
from kern.manifest.source import Source
from kern.manifest.types import Manifest

MAX_BYTES = 8 * 2**20
"""Largest manifest that is read. A 36-layer model's takes under 1 MiB."""

MAX_NESTING = 64
"""Deepest nesting of objects and arrays. A manifest's own form takes 8 levels, an expression 2 a level."""

MAX_FAULTS = 1000
"""Most faults of form that are told of one file."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SURROGATE = re.compile(r"\\(?:\\|u([dD][89a-fA-F][0-9a-fA-F]{2})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|.)", re.S)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DEPTH = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


@dataclass(frozen=True, slots=True)
class Reading:
    """What reading gave: a manifest, or diagnostics; and the text that they point into."""

    manifest: Manifest | None
    diagnostics: tuple[Diagnostic, ...]
    source: Source


def read(data: bytes) -> Reading:
    """Read a manifest's bytes. Every fault of form is a diagnostic; nothing is raised."""
    if len(data) > MAX_BYTES:
        fault = codes.TOO_LARGE.at(
            (),
            f"the file has {len(data):,} bytes, more than the {MAX_BYTES:,} that are read",
            "a manifest holds no data: put constants into the weights file",
        )
        return Reading(None, (replace(fault, offset=0),), Source(""))
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        fault = codes.NOT_UTF8.at((), f"byte {error.start} is not UTF-8", "save the file as UTF-8")
        return Reading(None, (replace(fault, offset=len(before)),), Source(data.decode(errors="replace")))
    source = Source(text)
    if _nesting(data) > MAX_NESTING and (deep := _too_deep(text)) is not None:
        return Reading(None, (deep,), source)
    scan = _Scan()
    try:
        document = scan.load(text)
    except json.JSONDecodeError as error:
        return Reading(None, (_not_json(text, error),), source)
    unreadable = list(_unreadable(source)) if scan.suspect(text) else []
    found = [*(_repeated(source) if scan.repeats else ()), *(one.fault for one in unreadable)]
    manifest, structural = _structure(_readable(text, unreadable), source, document, {fault.path for fault in found})
    found += structural
    if found:
        return Reading(None, _bounded(sorted(found, key=source.offset)), source)
    return Reading(manifest, (), source)


def _bounded(found: list[Diagnostic]) -> tuple[Diagnostic, ...]:
    if len(found) <= MAX_FAULTS:
        return tuple(found)
    message = f"{len(found) - MAX_FAULTS:,} further faults are not told"
    return (
        *found[:MAX_FAULTS],
        replace(found[MAX_FAULTS], code=codes.TOO_MANY.id, message=message, help="mend these first"),
    )


def _not_json(text: str, error: json.JSONDecodeError) -> Diagnostic:
    place = min(error.pos, max(len(text) - 1, 0))
    reason = error.msg[0].lower() + error.msg[1:].removesuffix(" at")
    return replace(codes.NOT_JSON.at((), f"not JSON: {reason}", "see RFC 8259 for the form"), offset=place)


def _nesting(data: bytes) -> int:
    """An upper bound on the nesting that costs no parsing: brackets inside strings count too."""
    steps = map(_DEPTH.__getitem__, data.translate(None, _NOT_BRACKETS))
    return max(itertools.accumulate(steps), default=0)


def _too_deep(text: str) -> Diagnostic | None:
    """The fault where nesting first exceeds the bound, brackets in strings left out."""
    depth = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match.group(), 0)
        if depth > MAX_NESTING:
            message = f"more than {MAX_NESTING} objects and arrays inside each other"
            fault = codes.TOO_DEEP.at((), message, "no part of a manifest nests so deep")
            return replace(fault, offset=match.start())
    return None


class _Scan:
    """One pass of Python's JSON reader that notes what pydantic would accept or choke on."""

    def __init__(self) -> None:
        self.repeats = False
        self.numbers = False

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
        return members

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
    for path, places in source.spans.items():
        for occurrence in range(1, len(places)):
            if places[occurrence].key is None or places[occurrence].key == places[occurrence - 1].key:
                continue
            fault = codes.DUPLICATE_KEY.at(
                path,
                f"`{path[-1]}` stands here a second time",
                "keep one of the two, or rename it",
                anchor="key",
            )
            yield replace(fault, occurrence=occurrence)


def _bad_number(token: str) -> str | None:
    if token in ("NaN", "Infinity", "-Infinity"):
        return f"{token} is no number"
    if re.fullmatch(r"-?\d{20,}", token):
        return f"an integer of {len(token.lstrip('-'))} digits is beyond 2⁶³"
    if re.fullmatch(r"-?\d[\d.eE+-]*", token) and not math.isfinite(float(token)):
        return f"{token[:24]} is beyond what a number can hold"
    return None


def _lone_surrogates(text: str, start: int, end: int) -> Iterator[int]:
    for match in _SURROGATE.finditer(text, start, end):
        if match[1] and not (match[2] and match[1][1] in "89aAbB"):
            yield match.start()


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A number or half a character that no value can hold: where it stands, and what it is read as instead."""

    fault: Diagnostic
    start: int
    end: int
    instead: str


def _unreadable(source: Source) -> Iterator[_Unreadable]:
    """Numbers that are none or too large, and strings that hold half a character."""
    for path, places in source.spans.items():
        for place in places:
            token = source.text[place.start : place.end]
            if token[0] not in '"[{' and (message := _bad_number(token)):
                fault = codes.NUMBER.at(path, message, "write a finite number within 64 bits")
                yield _Unreadable(replace(fault, offset=place.start), place.start, place.end, "0")
            strings = [(place.start, place.end)] if token[0] == '"' else []
            if place.key is not None:
                key = _STRING.match(source.text, place.key)
                assert key is not None
                strings.append(key.span())
            for start, end in strings:
                for offset in _lone_surrogates(source.text, start, end):
                    fault = codes.SURROGATE.at(path, "half of a surrogate pair", "write the character itself")
                    yield _Unreadable(replace(fault, offset=offset), offset, offset + 6, "\\u003f")


def _readable(text: str, unreadable: list[_Unreadable]) -> str:
    """The text with all of that made harmless, so that the rest is checked too. Nothing changes its place."""
    parts, end = [], 0
    for one in sorted(unreadable, key=lambda one: one.start):
        parts += [text[end : one.start], one.instead.ljust(one.end - one.start)]
        end = one.end
    return "".join([*parts, text[end:]])


def _structure(text: str, source: Source, document: Any, told: set[Path]) -> tuple[Manifest | None, list[Diagnostic]]:
    """The manifest, or what of its form is wrong besides the paths already `told`."""
    try:
        return Manifest.model_validate_json(text), []
    except ValidationError as error:
        faults = [_fault(details, document) for details in error.errors(include_url=False)]
        return None, [fault for fault in faults if fault.path in source.spans and fault.path not in told]


def _path(location: tuple[int | str, ...], document: Any) -> Path:
    """The error's location without pydantic's own marks: walk the document and keep what is in it."""
    path: list[int | str] = []
    here = document
    for item in location:
        known = isinstance(here, dict) and item in here
        if isinstance(item, str) and item.startswith(TAG) and not known:
            continue
        path.append(item)
        inside = known or (isinstance(here, list) and isinstance(item, int) and item < len(here))
        here = here[item] if inside else None
    return tuple(path)


_JSON_TYPES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
_WANTED = {
    "int_type": "an integer",
    "string_type": "a string",
    "bool_type": "true or false",
    "float_type": "a number",
    "tuple_type": "an array",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "mapping_type": "an object",
    "dict_type": "an object",
}


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _found(value: Any) -> str:
    return _JSON_TYPES.get(type(value)) or f"the number {_shown(value)}"


@functools.cache
def _field_names() -> list[str]:
    schema = Manifest.model_json_schema()
    objects = [schema, *schema.get("$defs", {}).values()]
    return sorted({name for part in objects for name in part.get("properties", {})})


def _fault(details: ErrorDetails, document: Any) -> Diagnostic:
    """One of pydantic's errors as a diagnostic."""
    kind, value = details["type"], details["input"]
    location = details["loc"]
    if kind == "string_too_short":
        is_key = location[-1] == "[key]"
        path = _path(location[:-1] if is_key else location, document)
        anchor: Any = "key" if is_key else "value"
        return codes.EMPTY_NAME.at(path, "a name is empty", "give it at least one character", anchor=anchor)
    path = _path(location, document)
    if kind == "missing":
        if isinstance(path[-1], int):
            return _wrong_length(path[:-1], value)
        return codes.MISSING_FIELD.at(path[:-1], f"`{path[-1]}` is missing", f"add `{path[-1]}`")
    if kind == "extra_forbidden":
        import difflib  # worth its import time only where something is misspelt

        close = difflib.get_close_matches(str(path[-1]), _field_names(), n=1)
        help = f"did you mean `{close[0]}`?" if close else "remove it: every field has a meaning here"
        return codes.UNKNOWN_FIELD.at(path, f"no field is called `{path[-1]}` here", help, anchor="key")
    if kind == "param":
        return codes.BAD_PARAM.at(
            path,
            f"`{value}` is no parameter",
            "write a scalar (i32 u32 i64 f32 u8), or in, out or inout with ptr or buffer<dtype>, perhaps ` align N`",
        )
    if kind in ("less_than", "greater_than_equal", "finite_number"):
        return codes.NUMBER.at(path, f"{_shown(value)} is out of range", "write a finite number within 64 bits")
    if kind == "literal_error":
        expected = details.get("ctx", {}).get("expected", "")
        return codes.WRONG_TYPE.at(path, f"{_shown(value)} is none of {expected}", "choose one of them")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return codes.WRONG_TYPE.at(path, f"{_shown(value)} has no form known here", _forms(path))
    if kind == "too_long":
        return _wrong_length(path, value)
    wanted = _WANTED.get(kind, details["msg"])
    return codes.WRONG_TYPE.at(path, f"expected {wanted}, found {_found(value)}", "see `kern schema` for the form")


def _wrong_length(path: Path, value: list[Any]) -> Diagnostic:
    wanted = 2 if path[-1] in ("ceil_div", "mul", "add") else 3
    return codes.WRONG_TYPE.at(
        path, f"expected {wanted} elements, found {len(value)}", "see `kern schema` for the form"
    )


def _forms(path: Path) -> str:
    """What may stand where no known form does."""
    literal = '{"i32": v} {"u32": v} {"i64": v} {"f32": v} {"u8": v}'
    if len(path) >= 2 and path[-2] == "args":
        step = 'a step takes {"arg": i}, {"scratch": name} or a literal'
        dispatch = 'a dispatch takes {"buf": name}, {"state": name}, {"sym": name}, {"expr": …} or a literal'
        return f"{step if 'steps' in path else dispatch} {literal}"
    return 'write an integer, {"sym": s}, {"ceil_div": [e, n]}, {"mul": [e, n]} or {"add": [e, e]}'
