"""Tables of the settings in checkpoints, what is done with each, and the reading of their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from kern.checkpoints.config import UnsupportedModel, shown

_MAX_NUMBER: Final = 1e30
_MAX_SIZE: Final = 2**40

MOE: Final = "a mixture of experts is not built"
SCALED: Final = "a scale that llama and qwen3 do not have"
RECORD: Final = "a record of how the file was made"


@dataclass(frozen=True, slots=True)
class Field:
    """What is done with a field: obeyed, refused unless it has one of the values `unless`, or irrelevant."""

    verdict: Literal["obeyed", "refused", "irrelevant"]
    note: str
    unless: tuple[object, ...] = ()


Table = Mapping[str, Field]
"""Fields by name. A name that ends with `*` matches every name with that prefix; an exact name has precedence."""


def obeyed(note: str = "") -> Field:
    """A field that the reader uses."""
    return Field("obeyed", note)


def refused(note: str, *unless: object) -> Field:
    """A field that is refused unless its value is in `unless`; null counts as absent."""
    return Field("refused", note, unless)


def irrelevant(note: str) -> Field:
    """A field that does not change what is computed."""
    return Field("irrelevant", note)


def each(names: str, field: Field) -> dict[str, Field]:
    """The same entry for several fields, their names separated by spaces."""
    return dict.fromkeys(names.split(), field)


def check_fields(settings: Mapping[str, Any], table: Table, where: str = "") -> None:
    """Raises UnsupportedModel for the first field that `table` refuses, with its name, file (`where`) and value."""
    for name, value in settings.items():
        field = field_of(name, table)
        if field is not None and field.verdict == "refused" and value is not None and value not in field.unless:
            raise UnsupportedModel(
                f"{name}{where} is {shown(value)}", field.note or f"only {accepted(field)} can be built"
            )


def unknown_fields(settings: Mapping[str, Any], table: Table) -> Iterator[str]:
    """The fields that are not in `table`."""
    return (name for name in settings if field_of(name, table) is None)


def field_of(name: str, table: Table) -> Field | None:
    """The entry of `table` for a field."""
    if name in table:
        return table[name]
    return next((field for key, field in table.items() if key.endswith("*") and name.startswith(key[:-1])), None)


def accepted(field: Field) -> str:
    """The values that a refused field may have, for messages and documents."""
    return " or ".join(repr(value) for value in field.unless) or "a file without it"


def size(values: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """An integer of at least 1. Raises UnsupportedModel."""
    value = values.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise UnsupportedModel(f"{key} in the model's config is {shown(value)}, not an integer")
    if not 1 <= value <= _MAX_SIZE:
        how = "below 1" if value < 1 else f"above {_MAX_SIZE}"
        raise UnsupportedModel(f"{key} in the model's config is {shown(value)}, {how}")
    return value


def number(values: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A number above 0. Raises UnsupportedModel."""
    value = values.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < _MAX_NUMBER:
        raise UnsupportedModel(f"{key} in the model's config is {shown(value)}, not a number above 0")
    return float(value)


def flag(values: Mapping[str, Any], key: str, default: bool) -> bool:
    """True or false. Raises UnsupportedModel."""
    value = values.get(key, default)
    if not isinstance(value, bool):
        raise UnsupportedModel(f"{key} in the model's config is {shown(value)}, neither true nor false")
    return value
