"""The root of every error that kern raises on purpose."""

from __future__ import annotations

from typing import ClassVar


def install_hint(extra: str) -> str:
    """What to run to have an optional part of kern: `capture`, `cuda` or `gguf`."""
    return f"in kern's source folder: pip install -e '.[{extra}]'"


class KernError(Exception):
    """Something a user can act on: what is wrong, and what to do next.

    `code` names the kind of failure and is stable; `exit_code` is what the command line exits with:
    1 where the answer is no (invalid, failed), 2 for usage, unreadable files and absent devices.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help

    def __str__(self) -> str:
        return f"{self.message}; {self.help}" if self.help else self.message
