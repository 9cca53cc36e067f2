"""Running a command with the recorder inside each of its processes that uses CUDA."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from kern.capture.errors import CommandNotStarted, DumpUnusable, InjectionTaken

_INJECTION = "CUDA_INJECTION64_PATH"
_OF_A_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
"""They reach the command too, and this process waits for the command to handle them."""
_OF_A_PROCESS = (signal.SIGTERM, signal.SIGHUP)
"""They are passed on."""


def run_recorded(command: Sequence[str], dump: Path, library: Path, cupti: Path | None) -> int:
    """Run `command` on this process's own stdin, stdout and stderr, recorded into `dump`; its exit status.

    A command that a signal ended gives 128 + its number. `cupti` is for programs that have no libcupti.
    Raises InjectionTaken, DumpUnusable, CommandNotStarted.
    """
    if os.environ.get(_INJECTION):
        raise InjectionTaken(
            f"{_INJECTION} is set to {os.environ[_INJECTION]!r}: another tool is in the program already",
            "unset it, or run the command without that tool",
        )
    made = _prepare(dump)
    environment = os.environ | {_INJECTION: str(library), "KERN_CAPTURE_DIR": str(dump.absolute())}
    if cupti is not None:
        environment["KERN_CUPTI"] = str(cupti)
    try:
        return _run(command, environment)
    except OSError as error:
        for folder in made:
            folder.rmdir()
        raise CommandNotStarted(
            f"`{command[0]}` cannot be started: {error.strerror}", "check its name, and that it may be executed"
        ) from error


def _prepare(dump: Path) -> list[Path]:
    """Make the folder, or see that it is empty; those that were made, the innermost first."""
    try:
        made = [folder for folder in (dump, *dump.parents) if not folder.exists()]
        dump.mkdir(parents=True, exist_ok=True)
        used = any(dump.iterdir())
        writable = os.access(dump, os.W_OK | os.X_OK)
    except OSError as error:
        raise DumpUnusable(f"{dump} cannot be made or read: {error.strerror}", "name another folder") from error
    if used:
        raise DumpUnusable(
            f"{dump} is not empty",
            "a recording needs an empty folder: name a new one, or remove this one first",
        )
    if not writable:
        raise DumpUnusable(f"{dump} may not be written", "name another folder")
    return made


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    received: list[int] = []
    with _handled(_OF_A_TERMINAL, lambda number, frame: None), _handled(_OF_A_PROCESS, lambda n, _: received.append(n)):
        child = subprocess.Popen(command, env=environment)
        with _handled(_OF_A_PROCESS, lambda number, frame: child.send_signal(number)):
            for number in received:
                child.send_signal(number)
            status = child.wait()
    return status if status >= 0 else 128 - status


@contextmanager
def _handled(numbers: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle signals, except those that this process ignores: the command ignores them as well.

    A handler that does nothing is not SIG_IGN, which the command would inherit.
    """
    before = {number: old for number in numbers if (old := signal.getsignal(number)) is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
