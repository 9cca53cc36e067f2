"""Tables and lines: without borders, as wide as the terminal, names made safe to show."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from kern.cli.terminal import printable
from kern.manifest.counts import counted

MOST: Final = 256
"""Entries of a list that are shown; `--json` has them all."""
_Entry = TypeVar("_Entry")

WIDTH: Final = 100
"""Columns where there is no terminal."""
_NARROWEST: Final = 80


def printer() -> Any:
    """A function that prints them."""
    from rich.console import Console

    width = max(shutil.get_terminal_size((WIDTH, 24)).columns, _NARROWEST)
    return Console(highlight=False, width=width, emoji=False).print


def table(*columns: str) -> Any:
    """A table without lines. A title that begins with a space is right-aligned, as are the cells below it."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in columns:
        side: Any = "right" if title.startswith(" ") else "left"
        made.add_column(title.strip(), justify=side, overflow="fold", no_wrap=title == "kernel")
    return made


def safe(value: str) -> str:
    """Text from a file, escaped for rich."""
    from rich.markup import escape

    return escape(printable(value))


def shown(entries: Sequence[_Entry], noun: str) -> tuple[Sequence[_Entry], str]:
    """The first MOST entries, and a line about the others, empty where there are none."""
    left = len(entries) - MOST
    return entries[:MOST], f"and {counted(left, noun)} more: --json has them all" if left > 0 else ""
