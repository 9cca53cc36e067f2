"""Running a command with the recorder inside each of its processes that uses CUDA."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from kern.capture.errors import CommandNotStarted, DumpUnusable, InjectionTaken

_INJECTION = "CUDA_INJECTION64_PATH"


def run_recorded(command: Sequence[str], dump: Path, library: Path, cupti: Path | None) -> int:
    """Run `command` on this process's own stdin, stdout and stderr, recorded into `dump`; its exit status.

    A command that a signal ended gives 128 + its number. `cupti` serves programs that bring no libcupti of their own.
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
        if made:
            dump.rmdir()
        raise CommandNotStarted(
            f"`{command[0]}` cannot be started: {error.strerror}", "check its name, and that it may be executed"
        ) from error


def _prepare(dump: Path) -> bool:
    """Make the folder, or see that it is empty; whether it was made."""
    try:
        made = not dump.exists()
        dump.mkdir(parents=True, exist_ok=True)
        used = any(dump.iterdir())
        writable = os.access(dump, os.W_OK | os.X_OK)
    except OSError as error:
        raise DumpUnusable(f"{dump} cannot be made or read: {error.strerror}", "name another folder") from error
    if used:
        raise DumpUnusable(f"{dump} is not empty", "a recording goes into a folder of its own: name a new one")
    if not writable:
        raise DumpUnusable(f"{dump} may not be written", "name another folder")
    return made


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    children: list[subprocess.Popen[bytes]] = []
    with _signals_for(children):
        child = subprocess.Popen(command, env=environment)
        children.append(child)
        status = child.wait()
    return status if status >= 0 else 128 - status


@contextmanager
def _signals_for(children: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """An interrupt reaches the command from the terminal, and this process waits for it; SIGTERM is handed on."""

    def hand_on(number: int, frame: FrameType | None) -> None:
        for child in children:
            child.send_signal(number)

    def leave(number: int, frame: FrameType | None) -> None:
        pass  # not SIG_IGN, which the command would inherit

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, leave),
        signal.SIGTERM: signal.signal(signal.SIGTERM, hand_on),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
