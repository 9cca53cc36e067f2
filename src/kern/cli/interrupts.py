"""Ctrl-C as KeyboardInterrupt, but never inside an import, where any error may come of it; SIGTERM as an exit."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from kern.manifest.errors import KernError

_RETRY_S = 0.02
_IMPORT_FRAMES = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
_raised: list[int] = []


@contextmanager
def interruptible() -> Iterator[None]:
    """Within the body, an interrupt that comes during an import, or is lost in a callback, is raised soon after.

    An error that a library makes of an interrupt leaves the body as KeyboardInterrupt. A signal that this process was
    told to ignore, as one in the background is, stays ignored.
    """
    _raised.clear()
    handlers = {signal.SIGINT: _interrupt, signal.SIGTERM: _terminate}
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
    raise SystemExit(128 + number)  # temporary folders are removed on the way out


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
