"""Errors and warnings of the command line: what they are, and how they are shown."""

from __future__ import annotations

import sys
import warnings
from typing import Any, TextIO

import typer

from kern.cli import diagnostics
from kern.cli.outputs import json_text
from kern.cli.terminal import printable
from kern.files.user_cache import CacheIgnored
from kern.manifest.errors import KernError, variant
from kern.manifest.limits import LimitReached, help_for


class UsageError(KernError, code="usage", exit_code=2):
    """Unknown options, options that contradict each other, or a value that an option does not take."""


StdoutUnwritable = variant(
    KernError, "stdout-unwritable", "Standard output is closed, or its disk is full.", help="print to another file"
)
PARSER_ERROR: type[Any] = typer.BadParameter.__mro__[1]
"""What typer raises for arguments that it cannot parse. typer does not export it."""


def reported(error: Exception) -> KernError | None:
    """The error to show for one that ended a command: a limit on the process, or an output. None for a bug in kern."""
    help = help_for(error)
    if isinstance(error, KernError):
        return error if help is None else LimitReached(error.message, help)
    reason = "memory ran out" if isinstance(error, MemoryError) else getattr(error, "strerror", None) or str(error)
    if help is not None:
        name = error.filename if isinstance(error, OSError) else None
        return LimitReached(reason if name is None else f"{reason}: {name}", help)
    if isinstance(error, PARSER_ERROR):
        return _usage(error)
    # What commands read and write is checked where they do it.
    return StdoutUnwritable(f"the output cannot be written: {reason}") if isinstance(error, OSError) else None


def _usage(error: Any) -> UsageError:
    message = " ".join(error.format_message().split()).rstrip(".") or "Missing command"
    return UsageError(message, f"see `{error.ctx.command_path} --help`" if error.ctx else "see `kern --help`")


def show(error: KernError, as_json: bool) -> None:
    """The error on stderr; with `as_json`, as an object on stdout too. An invalid artifact is shown in full."""
    from kern.verification.report import InvalidArtifact

    report = error.report if isinstance(error, InvalidArtifact) else None
    if report is not None and not as_json:
        diagnostics.show(report)
    print(f"kern: error[{error.code}]: {printable(error.message)}", file=sys.stderr)
    if error.help:
        print(f"help: {printable(error.help)}", file=sys.stderr)
    if as_json:
        described = {"error": {"code": error.code, "message": error.message, "help": error.help}}
        print(json_text(described if report is None else diagnostics.as_dict(report) | described))


def show_warnings() -> None:
    """From now on, show kern's own warnings as one line on stderr, and those of libraries as Python does."""
    warnings.showwarning = _show_warning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if issubclass(category, CacheIgnored):
        print(f"kern: warning: {printable(str(message))}", file=sys.stderr)
    else:
        print(warnings.formatwarning(message, category, filename, lineno, line), end="", file=file or sys.stderr)
