"""Warnings of kern's own as one line on stderr; those of libraries stay as Python shows them."""

from __future__ import annotations

import sys
import warnings
from typing import TextIO

from kern.files.user_cache import CacheIgnored


def show_warnings() -> None:
    """From now on."""
    warnings.showwarning = _show


def _show(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    from kern.cli.terminal import printable

    if issubclass(category, CacheIgnored):
        print(f"kern: warning: {printable(str(message))}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=file or sys.stderr)
