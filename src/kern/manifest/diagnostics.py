"""Diagnostics: one for each error in a manifest, with a stable code that can be explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Path = tuple[str | int, ...]
"""Keys and indices from the top of the manifest down to a value."""

Anchor = Literal["value", "key"]

MAX_NAME: Final = 256
"""Longest key, in characters: keys are fields and names, which messages and pointers contain."""


def pointer(path: Path) -> str:
    """The JSON pointer (RFC 6901) of a path; the whole document is the empty string.

    A key longer than a manifest may have is shortened, since every path inside it would repeat it.
    """
    return "".join("/" + _token(str(token)).replace("~", "~0").replace("/", "~1") for token in path)


def _token(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[:MAX_NAME] + "…"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error: a code, the location, what is wrong and how to fix it.

    `anchor`: whether line and column are those of the value at `path`, or of its key.
    `occurrence` is 1 for the second of two equal keys, the only case where a path is ambiguous.
    `offset` (code points) replaces the path where the text is not JSON.
    """

    code: str
    path: Path
    message: str
    help: str
    severity: Literal["error"] = "error"
    anchor: Anchor = "value"
    occurrence: int = 0
    offset: int | None = None

    @property
    def pointer(self) -> str:
        """The location as a JSON pointer (RFC 6901)."""
        return pointer(self.path)


@dataclass(frozen=True, slots=True)
class Example:
    """A failing and a fixed manifest, as edits of the example manifest: JSON pointer → JSON text.

    The pointer "" stands for the whole file. A pointer whose last token does not exist adds a member.
    """

    failing: Mapping[str, str]
    fixed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FolderExample:
    """A failing and a fixed artifact folder, described in a line each: such an error needs files to show."""

    failing: str
    fixed: str


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of error: `K` + the rule's number (two digits) + its own (two digits)."""

    id: str
    title: str
    explanation: str
    example: Example | FolderExample = field(repr=False)

    def at(self, path: Path, message: str, help: str, *, anchor: Anchor = "value") -> Diagnostic:
        """A diagnostic of this code at `path`."""
        return Diagnostic(self.id, path, message, help, anchor=anchor)
