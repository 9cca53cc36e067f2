"""Names the launch that ends the process on stderr, at the cost of one Python frame per launch.

Each launch runs in a Python frame that is named by its label. For a fatal signal, faulthandler prints the frames: it
writes them from the signal's handler, without the interpreter. For exit(), a handler of the C library looks for the
frame.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType, FunctionType
from typing import Final

from kern.device.base import LaunchError

FRAME: Final = "<kernel launch>"
"""The file name of labelled frames."""

_STDERR: Final = 2
_FAILED: Final = 1
_LABELS: Final = 4096

_libc = ctypes.CDLL(None)
_dso = ctypes.c_byte()
"""Its address identifies our handler to the C library."""
_state = {"watched": False, "leaving": False}


def labelled(label: str, function: Callable[..., object], *arguments: object) -> Callable[[], None]:
    """A call of `function` in a frame named by the label."""

    def call() -> None:
        function(*arguments)

    return FunctionType(_code(call.__code__, label), {}, label, None, call.__closure__)


@lru_cache(_LABELS)
def _code(code: CodeType, label: str) -> CodeType:
    return code.replace(co_name=label, co_qualname=label, co_filename=FRAME)


def watch() -> None:
    """Name any launch that ends this process from now on. A second call does nothing."""
    if not faulthandler.is_enabled():
        faulthandler.enable(_STDERR)
    if _state["watched"]:
        return
    _state["watched"] = True
    faulthandler.register(signal.SIGTRAP, _STDERR, chain=True)  # __builtin_trap on aarch64, left out by enable()
    if not _has_glibc():
        return
    _libc.__cxa_atexit(_on_exit, None, ctypes.byref(_dso))
    _libc.__cxa_at_quick_exit(_on_exit, None)
    atexit.register(_leave)


def _has_glibc() -> bool:
    """Other C libraries cannot remove a handler, which must not run after the interpreter has ended."""
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):
        return False


def _leave() -> None:
    """The interpreter ends: have the C library run our handler now, and remove it."""
    _state["leaving"] = True
    _libc.__cxa_finalize(ctypes.byref(_dso))


def _ended(_: object) -> None:
    """Called at exit(), which a kernel or a module's constructor must not call."""
    label = None if _state["leaving"] else _running()
    if label is None:
        return
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    line = f"kern: error[{LaunchError.code}]: {label} ended the process by exit(): a kernel must return\n"
    os.write(_STDERR, line.encode("ascii", "backslashreplace"))
    os._exit(_FAILED)


_on_exit = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_ended)


def _running() -> str | None:
    """The label of a launch that some thread is running."""
    for top in sys._current_frames().values():
        frame: FrameType | None = top
        while frame is not None:
            if frame.f_code.co_filename == FRAME:
                return frame.f_code.co_name
            frame = frame.f_back
    return None
