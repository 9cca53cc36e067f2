"""The root of every error that kern raises on purpose."""

from __future__ import annotations

import sys
from pathlib import Path
from types import new_class
from typing import ClassVar, Final, TypeVar, cast

Family = TypeVar("Family", bound="KernError")

_SOURCE: Final = Path(__file__).parents[3]
"""The source folder, where kern runs from one."""


def install_hint(extra: str) -> str:
    """The command that installs an optional part of kern: `capture`, `cuda` or `gguf`."""
    if (_SOURCE / "pyproject.toml").is_file():
        return f"in kern's source folder: pip install -e '.[{extra}]'"
    return f"pip install 'kern-runtime[{extra}]'"


class KernError(Exception):
    """An error that a user can act on: what is wrong, and what to do next.

    `code` names the kind of error and is stable; a family that is never raised itself has no code. `exit_code` is what
    the command line exits with: 1 where the answer is no (invalid, failed), 2 for usage, unreadable files and absent
    devices. `help` of a class is for those that are raised without one.
    """

    code: ClassVar[str]
    exit_code: ClassVar[int] = 1
    help: str = ""

    def __init_subclass__(cls, *, code: str | None = None, exit_code: int | None = None, help: str = "") -> None:
        if code is not None:
            cls.code = code
        if exit_code is not None:
            cls.exit_code = exit_code
        cls.help = help or cls.help

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.help = help or self.help

    def __str__(self) -> str:
        return f"{self.message}; {self.help}" if self.help else self.message


def variant(
    family: type[Family], code: str, meaning: str, exit_code: int | None = None, help: str = ""
) -> type[Family]:
    """A subclass of `family` in one line. Tracebacks name it after its code: `UnsafePath` for `unsafe-path`."""
    name = "".join(word.capitalize() for word in code.split("-"))
    body = {"__doc__": meaning, "__module__": sys._getframe(1).f_globals["__name__"]}
    options = {"code": code, "exit_code": exit_code, "help": help}
    return cast(type[Family], new_class(name, (family,), options, lambda namespace: namespace.update(body)))
