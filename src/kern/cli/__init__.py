"""The command `kern`: parsing, rendering and exit codes; everything else is done by the packages below."""

from __future__ import annotations

import gc
import os
import sys
from itertools import takewhile

from kern.cli.interrupts import interruptible

_INTERRUPTED = 130
_WIDTHS = range(20, 1001)
"""Plausible widths of a terminal, in columns."""


def main() -> None:
    """Run the command line. Exits 0 (done), 1 (the answer is no), 2 (usage) or 130 (interrupted)."""
    # Looking for pydantic plugins means reading the metadata of every installed package.
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    # A manifest is tens of thousands of live objects: scanning them for garbage takes a tenth of `verify`.
    gc.set_threshold(200_000, 50, 50)
    _open_output()
    _drop_implausible_width()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    given: set[str] = set()
    try:
        with interruptible():
            status = _run(given)
    except KeyboardInterrupt:
        status = _INTERRUPTED
    except Exception as error:
        status = _failed(error, "json" in given)
    sys.exit(status)


def _open_output() -> None:
    """Open the null device in place of an output that the shell has closed; else a file opened later would get it."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, it stays open
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _drop_implausible_width() -> None:
    """Remove a width that no terminal has from the environment.

    At 0, which some editors set, rich prints nothing, not even errors; at a huge one it pads help texts with spaces.
    typer fails if TERMINAL_WIDTH is not a number.
    """
    for variable in ("COLUMNS", "TERMINAL_WIDTH"):
        width = os.environ.get(variable)
        if width is not None and (len(width) > 4 or not width.isdecimal() or int(width) not in _WIDTHS):
            del os.environ[variable]


def _run(given: set[str]) -> int:
    """The command's exit status. `given` receives `json` if that option is given."""
    from kern.cli.app import app
    from kern.cli.errors import show_warnings

    show_warnings()
    try:
        return app(prog_name="kern", standalone_mode=False, obj=given) or 0
    finally:
        sys.stdout.flush()


def _failed(error: Exception, as_json: bool) -> int:
    """Show an error that is not a bug in kern, and give the exit status."""
    from kern.cli.errors import PARSER_ERROR, StdoutUnwritable, reported, show

    shown = reported(error)
    if shown is None:
        raise error
    error.__traceback__ = None  # its frames hold what took the memory
    if isinstance(shown, StdoutUnwritable):
        _discard_output()
    # A wrong option ends parsing before any option is noted.
    wrong = isinstance(error, PARSER_ERROR) and "--json" in takewhile(lambda argument: argument != "--", sys.argv)
    try:
        show(shown, as_json or wrong)
        sys.stdout.flush()
    except OSError:  # stderr has the error, unless it is the one that cannot be written
        _discard_output()
    return shown.exit_code


def _discard_output() -> None:
    """What stdout still holds would fail again at exit."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
