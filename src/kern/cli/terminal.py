"""Text that is safe to show: names from a file may hold anything, terminals obey some of it."""

from __future__ import annotations

import unicodedata

_SHOWN = {"\t": " "}


def printable(text: str) -> str:
    """`text` with every control, surrogate and direction-changing character replaced by a visible one."""
    return "".join(_SHOWN.get(c, c) if c.isprintable() or c in _SHOWN else _visible(c) for c in text)


def _visible(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return " " if unicodedata.category(character) == "Zs" else "\N{REPLACEMENT CHARACTER}"
