"""Limits on names and expressions in a JSON document: there may be many, so each must be small."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kern.manifest import codes
from kern.manifest.diagnostics import Diagnostic, Path

OPERATIONS: Final = ("add", "mul", "ceil_div")
"""The keys whose operands are expressions."""


def oversized(value: Any, max_name: int, max_terms: int, path: Path = ()) -> Iterator[Diagnostic]:
    """Keys of more than `max_name` characters, and expressions and shapes of more than `max_terms` terms."""
    is_shape = path[-1:] == ("shape",) and isinstance(value, list)
    terms = sum(map(_terms, value)) if is_shape else _terms(value)
    if terms > max_terms:
        message = f"{terms:,} numbers and symbols; the limit is {max_terms}"
        yield codes.TOO_MANY_TERMS.at(path, message, "use fewer terms, or a separate symbol")
    elif isinstance(value, dict):
        for name, inner in value.items():
            if len(name) > max_name:
                message = f"a name of {len(name):,} characters; the limit is {max_name}"
                yield codes.NAME_TOO_LONG.at((*path, name), message, "choose a shorter name", anchor="key")
            yield from oversized(inner, max_name, max_terms, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from oversized(inner, max_name, max_terms, (*path, index))


def _terms(value: Any) -> int:
    """The numbers and symbols of an expression; 1 for anything else."""
    if isinstance(value, dict) and len(value) == 1:
        key, operands = next(iter(value.items()))
        if key in OPERATIONS and isinstance(operands, list):
            return sum(map(_terms, operands))
    return 1
