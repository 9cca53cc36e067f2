"""Checks the symbol values of a call."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import SupportsIndex

import numpy as np

from kern.manifest.errors import variant
from kern.manifest.expressions import Interval
from kern.runtime.errors import CallError

Values = Mapping[str, SupportsIndex]
"""A value for each symbol: integers of Python, numpy or the like."""


class SymbolError(CallError, code="bad-symbol-value"):
    """The values of the symbols are not what the program takes."""


SymbolMissing = variant(SymbolError, "symbol-missing", "A symbol that the program uses has no value.")
SymbolUnknown = variant(SymbolError, "symbol-unknown", "The manifest does not declare this symbol.")
SymbolOutOfBounds = variant(SymbolError, "symbol-out-of-bounds", "A symbol's value is outside its bounds.")


def checked(needed: frozenset[str], ranges: Mapping[str, Interval], values: Values, where: str) -> dict[str, int]:
    """The values of the `needed` symbols; every given value is checked against `ranges`.

    A declared symbol that is not needed may be given: it is checked and dropped. Raises SymbolMissing,
    SymbolUnknown or SymbolOutOfBounds, SymbolError where they are not a mapping; `where` names the call in the message.
    """
    if not isinstance(values, Mapping):
        raise SymbolError(
            f"{where}: the symbol values are a {type(values).__name__}, {values!r}", 'give a dict such as {"n": 4}'
        )
    integers: dict[str, int] = {}
    for name, value in values.items():
        if name not in ranges:
            raise SymbolUnknown(f"{where}: unknown symbol {name!r}", _known(ranges))
        low, high = ranges[name]
        integers[name] = _integer(value, f"{where}: {name}", f"{low}…{high}")
        if not low <= integers[name] <= high:
            raise SymbolOutOfBounds(f"{where}: {name} is {value}", f"give a value in {low}…{high}")
    missing = sorted(needed - values.keys())
    if missing:
        raise SymbolMissing(f"{where}: no value for {', '.join(missing)}", "give a value for every symbol that it uses")
    return {name: integers[name] for name in sorted(needed)}


def as_integer(value: object) -> int | None:
    """The integer that `value` is, of Python, numpy or the like; None for anything else, booleans too."""
    try:
        return None if isinstance(value, bool | np.bool_) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def _integer(value: object, where: str, allowed: str) -> int:
    integer = as_integer(value)
    if integer is None:
        raise SymbolOutOfBounds(
            f"{where} is a {type(value).__name__}, {value!r}, not an integer", f"give an integer in {allowed}"
        )
    return integer


def _known(ranges: Mapping[str, Interval]) -> str:
    return f"the symbols are {', '.join(ranges)}" if ranges else "the manifest declares no symbols"
