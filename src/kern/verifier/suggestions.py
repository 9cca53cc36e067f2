"""Suggestions for unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

MAX_COMPARED: Final = 2**22
"""Most pairs of letters that are compared to find similar names in one manifest: less than a second."""


class Effort:
    """The rest of MAX_COMPARED, shared by all sections of a manifest."""

    def __init__(self) -> None:
        self._left = MAX_COMPARED

    def afford(self, cost: int) -> bool:
        """Take `cost` from what is left, if there is that much."""
        if cost > self._left:
            return False
        self._left -= cost
        return True


class Names:
    """The names of one section. Finding a similar one is slow, and is done while `effort` lasts."""

    def __init__(self, kind: str, names: Iterable[str], effort: Effort) -> None:
        self._kind = kind
        self._names = list(names)
        self._letters = sum(map(len, self._names))
        self._effort = effort
        self._hints: dict[str, str] = {}

    def hint(self, name: str) -> str:
        """How to fix `name`, which is unknown."""
        if name not in self._hints:
            if not self._effort.afford(len(name) * self._letters):
                return f"use a declared {self._kind}"
            self._hints[name] = self._search(name)
        return self._hints[name]

    def _search(self, name: str) -> str:
        if not self._names:
            return f"declare it: there is no {self._kind} here"
        near = difflib.get_close_matches(name, self._names, n=1)
        if near:
            return f"did you mean `{near[0]}`?"
        shown = ", ".join(f"`{known}`" for known in self._names[:5]) + (", …" if len(self._names) > 5 else "")
        return f"use one of {shown}"
