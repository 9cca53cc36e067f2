"""The root of every error that kern raises on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

_SOURCE: Final = Path(__file__).parents[3]
"""The source folder, where kern runs from one."""


def install_hint(extra: str) -> str:
    """The command that installs an optional part of kern: `capture`, `cuda` or `gguf`."""
    if (_SOURCE / "pyproject.toml").is_file():
        return f"in kern's source folder: pip install -e '.[{extra}]'"
    return f"pip install 'kern-runtime[{extra}]'"


class KernError(Exception):
    """An error that a user can act on: what is wrong, and what to do next.

    `code` names the kind of failure and is stable; `exit_code` is what the command line exits with:
    1 if the answer is no (invalid, failed), 2 for wrong usage, unreadable files and missing devices.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help

    def __str__(self) -> str:
        return f"{self.message}; {self.help}" if self.help else self.message
