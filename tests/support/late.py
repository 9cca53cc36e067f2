"""An executable whose reads complete late, as on a busy device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kern.runtime.arrays import PendingArray


class Late:
    """A read while the device is busy: not done before it is waited for."""

    def __init__(self, pending: PendingArray, owner: Slow) -> None:
        self._pending = pending
        self._owner = owner
        owner.under_way += 1
        owner.most_under_way = max(owner.most_under_way, owner.under_way)

    def done(self) -> bool:
        return False

    def wait(self) -> Any:
        self._owner.under_way -= 1
        return self._pending.wait()


class Slow:
    """An executable whose asynchronous reads complete late, on a device that is asynchronous or claims not to be."""

    def __init__(self, executable: Any, *, asynchronous: bool = False) -> None:
        self._executable = executable
        self.device = SimpleNamespace(asynchronous=asynchronous)
        self.under_way = 0
        self.most_under_way = 0
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executable, name)

    def read_async(self, name: str, values: Any = None) -> Any:
        self.reads += 1
        return Late(self._executable.read_async(name, values), self)
