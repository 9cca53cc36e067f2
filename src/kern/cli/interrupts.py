"""Ctrl-C as KeyboardInterrupt, but never inside an import, where any error may come of it; what else ends a process.

SIGTERM, SIGHUP (its terminal was closed) and SIGXCPU (a limit on processor time) are exits, so that temporary folders
go. SIGQUIT stays as the system has it: who sends it wants the process to stop where it is, with a core. SIGPIPE is
ignored by Python, and what is written then fails.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from kern.manifest.errors import KernError

_RETRY_S = 0.02
_IMPORT_FRAMES = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)
_STDERR: Final = 2
_raised: list[int] = []
_ended: list[int] = []


@contextmanager
def interruptible() -> Iterator[None]:
    """Within the body, an interrupt that comes during an import, or is lost in a callback, is raised soon after.

    An error that a library makes of an interrupt leaves the body as KeyboardInterrupt. A signal that this process was
    told to ignore, as one in the background is, stays ignored.
    """
    _raised.clear()
    _ended.clear()
    handlers = {signal.SIGINT: _interrupt, **dict.fromkeys(_ENDING, _terminate)}
    heeded = {number: handler for number, handler in handlers.items() if signal.getsignal(number) != signal.SIG_IGN}
    before = {number: signal.signal(number, handler) for number, handler in heeded.items()}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, _interrupt)
    hook, sys.unraisablehook = sys.unraisablehook, _unraisable
    try:
        yield
    except KernError:
        raise
    except Exception as error:
        if _raised:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def heeded() -> None:
    """Forget an interrupt that ended what it was meant to end, and after which the command goes on."""
    _raised.clear()


def _terminate(number: int, frame: FrameType | None) -> None:
    if _ended:  # a terminal that is closed may send it twice, and the second is not to stop the cleaning up
        return
    _ended.append(number)
    if number == signal.SIGXCPU:
        os.write(_STDERR, b"kern: error[limit-reached]: the limit on processor time (ulimit -t) was reached\n")
    raise SystemExit(128 + number)


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename in _IMPORT_FRAMES:
            signal.setitimer(signal.ITIMER_REAL, _RETRY_S)
            return
        frame = frame.f_back
    _raised.append(number)
    raise KeyboardInterrupt


def _unraisable(lost: Any) -> None:
    """What a callback of a library may not raise is told here: pydantic's, for one, drop an interrupt."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _RETRY_S)
    else:
        sys.__unraisablehook__(lost)
