"""What to say of a name that is not declared."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class Names:
    """The names of one section. Looking for a near one is slow, so only the first few unknown names get it."""

    BUDGET = 8

    def __init__(self, kind: str, names: Iterable[str]) -> None:
        self._kind = kind
        self._names = list(names)
        self._hints: dict[str, str] = {}

    def hint(self, name: str) -> str:
        """What to do about `name`, which is none of them."""
        if name in self._hints:
            return self._hints[name]
        if len(self._hints) >= self.BUDGET or max(len(name), len(self._names)) > 2000:
            return f"name a declared {self._kind}"
        self._hints[name] = hint = self._search(name)
        return hint

    def _search(self, name: str) -> str:
        if not self._names:
            return f"there is no {self._kind} to name"
        near = difflib.get_close_matches(name, self._names, n=1)
        if near:
            return f"did you mean `{near[0]}`?"
        shown = ", ".join(f"`{known}`" for known in self._names[:5]) + (", …" if len(self._names) > 5 else "")
        return f"there are {shown}"
