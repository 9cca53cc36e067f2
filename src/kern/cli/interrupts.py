"""Signals: Ctrl-C raises KeyboardInterrupt, but never during an import, where it could turn into any other error.

SIGTERM, SIGHUP (the terminal was closed) and SIGXCPU (the limit on processor time) raise SystemExit, so that temporary
folders are removed. SIGQUIT keeps its default, a core dump. Python ignores SIGPIPE, so that the write fails.
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
    """Within the body, an interrupt during an import, or one lost in a callback, is raised soon after.

    If a library turns an interrupt into another error, KeyboardInterrupt is raised in its place. A signal that this
    process inherited as ignored, as in the background, stays ignored.
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
    """Clear an interrupt that has been handled, so that the command continues."""
    _raised.clear()


def _terminate(number: int, frame: FrameType | None) -> None:
    if _ended:  # closing a terminal may send it twice, and the second must not stop the cleanup
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
    """Exceptions that a library's callback cannot raise end here: pydantic's callbacks, for one, drop an interrupt."""
    if isinstance(lost.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _RETRY_S)
    else:
        sys.__unraisablehook__(lost)
