"""The example manifest with the edits of a code's example."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kern.manifest.diagnostics import Path
from kern.manifest.source import Source
from kern.verifier.example import BASE


def edited(edits: Mapping[str, str]) -> str:
    """BASE with JSON texts put at JSON pointers, one after another.

    The pointer "" stands for the whole file; a pointer whose last token does not exist adds a member.
    Raises KeyError if its parent does not exist.
    """
    text = BASE
    for pointer, value in edits.items():
        text = _spliced(text, _path(pointer), value) if pointer else value
    return text


def _path(pointer: str) -> Path:
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    return tuple(int(part) if part.isdecimal() else part for part in parts)


def _spliced(text: str, path: Path, value: str) -> str:
    source = Source(text)
    if path in source.spans:
        start, end = source.span(path)
        return text[:start] + value + text[end:]
    _, end = source.span(path[:-1])
    empty = text[: end - 1].rstrip().endswith("{")
    member = ("" if empty else ", ") + json.dumps(path[-1]) + ": " + value
    return text[: end - 1].rstrip() + member + text[end - 1 :]
