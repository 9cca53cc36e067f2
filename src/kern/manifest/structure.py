"""Pydantic's errors as diagnostics: the path in the document, what is wrong there, what to do."""

from __future__ import annotations

import functools
import json
from typing import Any

from pydantic_core import ErrorDetails

from kern.manifest import codes
from kern.manifest.counts import excerpt
from kern.manifest.diagnostics import Diagnostic, Path
from kern.manifest.expressions import TAG
from kern.manifest.types import Manifest

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


def error_path(details: ErrorDetails, document: Any) -> Path:
    """The path of the diagnostic for one of pydantic's errors."""
    kind, location = details["type"], details["loc"]
    if kind == "string_too_short" and location[-1] == "[key]":
        return _path(location[:-1], document)
    path = _path(location, document)
    return path[:-1] if kind == "missing" else path


def structural_error(details: ErrorDetails, document: Any) -> Diagnostic:
    """One of pydantic's errors, about a value of `document`, as a diagnostic."""
    kind, location = details["type"], details["loc"]
    if kind == "string_too_short":
        is_key = location[-1] == "[key]"
        path = _path(location[:-1] if is_key else location, document)
        anchor: Any = "key" if is_key else "value"
        return codes.EMPTY_NAME.at(path, "a name is empty", "give it at least one character", anchor=anchor)
    path = _path(location, document)
    value = _value(document, path)
    if kind == "missing":
        if isinstance(path[-1], int):
            return _wrong_length(path[:-1], _value(document, path[:-1]))
        return codes.MISSING_FIELD.at(path[:-1], f"`{path[-1]}` is missing", f"add `{path[-1]}`")
    if kind == "extra_forbidden":
        import difflib  # imported only where something is misspelt: it takes time

        close = difflib.get_close_matches(str(path[-1]), _field_names(), n=1)
        help = f"did you mean `{close[0]}`?" if close else "remove it: no field may be added to the format"
        return codes.UNKNOWN_FIELD.at(path, f"unknown field `{path[-1]}`", help, anchor="key")
    if kind == "param":
        return codes.BAD_PARAM.at(
            path,
            f"`{excerpt(value)}` is not a parameter",
            "write a scalar (i32 u32 i64 f32 u8), or in, out or inout with ptr or buffer<dtype>, and maybe ` align N`",
        )
    if kind in ("less_than", "greater_than_equal", "finite_number"):
        return codes.NUMBER.at(path, f"{_shown(value)} is out of range", "write a finite number within 64 bits")
    if kind == "literal_error":
        expected = details.get("ctx", {}).get("expected", "")
        return codes.WRONG_TYPE.at(path, f"{_shown(value)} is not one of {expected}", "choose one of them")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return codes.WRONG_TYPE.at(path, f"{_shown(value)} is not one of the forms allowed here", _forms(path))
    if kind == "too_long":
        return _wrong_length(path, value)
    wanted = _WANTED.get(kind, details["msg"])
    return codes.WRONG_TYPE.at(path, f"expected {wanted}, found {_found(value)}", "see `kern schema` for the form")


def _path(location: tuple[int | str, ...], document: Any) -> Path:
    """The error's location without pydantic's tags: only what is in the document."""
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


def _value(document: Any, path: Path) -> Any:
    """The value at `path`; pydantic would copy it into each of its errors."""
    try:
        return functools.reduce(lambda here, item: here[item], path, document)
    except (KeyError, IndexError, TypeError):
        return None


def _shown(value: Any) -> str:
    return excerpt(json.dumps(value), 40)


def _found(value: Any) -> str:
    return _JSON_TYPES.get(type(value)) or f"the number {_shown(value)}"


@functools.cache
def _field_names() -> list[str]:
    schema = Manifest.model_json_schema()
    objects = [schema, *schema.get("$defs", {}).values()]
    return sorted({name for part in objects for name in part.get("properties", {})})


def _wrong_length(path: Path, value: list[Any]) -> Diagnostic:
    wanted = 2 if path[-1] in ("ceil_div", "mul", "add") else 3
    return codes.WRONG_TYPE.at(
        path, f"expected {wanted} elements, found {len(value)}", "see `kern schema` for the form"
    )


def _forms(path: Path) -> str:
    """The forms that are allowed at a path."""
    literal = '{"i32": v} {"u32": v} {"i64": v} {"f32": v} {"u8": v}'
    if len(path) >= 2 and path[-2] == "args":
        step = 'a step takes {"arg": i}, {"scratch": name} or a literal'
        dispatch = 'a dispatch takes {"buf": name}, {"state": name}, {"sym": name}, {"expr": …} or a literal'
        return f"{step if 'steps' in path else dispatch} {literal}"
    return 'write an integer, {"sym": s}, {"ceil_div": [e, n]}, {"mul": [e, n]} or {"add": [e, e]}'
