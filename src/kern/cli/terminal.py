"""What a terminal shows: text made safe, numbers in units, progress bars."""

from __future__ import annotations

import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]
"""Called with what is done so far, and all."""
_SHOWN = {"\t": " "}


def printable(text: str, keep: str = "") -> str:
    """`text` with every control, surrogate and direction-changing character replaced by a visible one.

    Names from a file may hold anything, and terminals obey some of it. Characters of `keep` stay as they are.
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


def binary(size: int) -> str:
    """Bytes in B, KiB, MiB or GiB: `12.3 MiB`."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


def rate(bytes_per_second: float) -> str:
    """Bytes per second in GB/s or TB/s, powers of ten."""
    if bytes_per_second >= 1e12:
        return f"{bytes_per_second / 1e12:.2f} TB/s"
    return f"{bytes_per_second / 1e9:.1f} GB/s"


@contextmanager
def bar(description: str, *, quiet: bool = False) -> Iterator[Progress]:
    """A progress bar in bytes on stderr, gone when done.

    With `quiet`, or where stderr is not a terminal, nothing is shown or imported for it.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(description, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
