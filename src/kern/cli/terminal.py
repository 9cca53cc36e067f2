"""Text that is safe to show: names from a file may hold anything, terminals obey some of it."""

from __future__ import annotations

import shutil
import sys
import textwrap
import unicodedata

_SHOWN = {"\t": " "}


def printable(text: str, keep: str = "") -> str:
    """`text` with every control, surrogate and direction-changing character replaced by a visible one.

    Characters of `keep` stay as they are.
    """
    return "".join(c if c.isprintable() or c in keep else _SHOWN.get(c) or _visible(c) for c in text)


def wrapped(line: str, indent: int = 0) -> str:
    """A line for stderr, broken between words where that is a terminal; what follows is indented."""
    if not sys.stderr.isatty():
        return line
    columns = shutil.get_terminal_size().columns
    return textwrap.fill(line, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def _visible(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return " " if unicodedata.category(character) == "Zs" else "\N{REPLACEMENT CHARACTER}"
