"""The command `kern`: parsing, rendering and exit codes; everything else is done by the packages below."""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn

from kern.cli.interrupts import interruptible
from kern.manifest.errors import KernError

_INTERRUPTED = 130
_LIMITED = 2
_WIDTHS = range(20, 1001)
"""Columns of terminals that are believed."""


def main() -> None:
    """Run the command line. Exits 0 (done), 1 (the answer is no), 2 (usage) or 130 (interrupted)."""
    # Looking for pydantic plugins means reading the metadata of every installed package.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    # A manifest is tens of thousands of objects and none of them garbage: searching them costs a tenth of `verify`.
    gc.set_threshold(200_000, 50, 50)
    _open_output()
    _believe_width()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        with interruptible():
            _run()
    except KernError as error:
        help = _limit_help(error)
        _tell(error.message, help or error.help)
        sys.exit(_LIMITED if help else error.exit_code)
    except (OSError, MemoryError, ImportError, RuntimeError) as error:
        help = _limit_help(error)
        if help is None and not isinstance(error, OSError):
            raise
        error.__traceback__ = None  # its frames hold what took the memory
        _end(error, help)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _open_output() -> None:
    """Put the null device where the shell has closed an output: printing to none would print to the other."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, it stays open
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _believe_width() -> None:
    """Forget a width that no terminal has: at 0, as some editors set it, rich prints nothing, errors neither.

    At very many, it would fill help texts up with spaces. typer reads TERMINAL_WIDTH, and fails where it is no number.
    """
    for variable in ("COLUMNS", "TERMINAL_WIDTH"):
        width = os.environ.get(variable)
        if width is not None and (len(width) > 4 or not width.isdecimal() or int(width) not in _WIDTHS):
            del os.environ[variable]


def _run() -> None:
    from kern.cli.app import app
    from kern.cli.warned import show_warnings

    show_warnings()
    try:
        app(prog_name="kern")
    finally:
        sys.stdout.flush()


def _limit_help(error: Exception) -> str | None:
    from kern.manifest.limits import help_for

    return help_for(error)


def _tell(message: str, help: str) -> None:
    from kern.cli.terminal import printable

    print(f"kern: {printable(message)}", file=sys.stderr)
    if help:
        print(f"help: {printable(help)}", file=sys.stderr)


def _end(error: Exception, help: str | None) -> NoReturn:
    """A limit on this process; else its output: what commands read and write is checked where they do it."""
    reason = "memory ran out" if isinstance(error, MemoryError) else getattr(error, "strerror", None) or str(error)
    if help is not None:
        named = f": {error.filename}" if isinstance(error, OSError) and error.filename is not None else ""
        _tell(f"{reason}{named}", help)
        sys.exit(_LIMITED)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    _tell(f"the output cannot be written: {reason}", "")
    sys.exit(1)
