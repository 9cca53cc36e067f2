"""A host device that counts what is allocated from it and freed, and can fail at any point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kern.device.base import DeviceError, FileRegion
from kern.device.host.device import HostDevice


class CountingDevice(HostDevice):
    """`taken` are the names of what is out; the call number `fails_at` (from 0) raises DeviceError."""

    def __init__(self, fails_at: int | None = None, free: int | None = None) -> None:
        super().__init__()
        self.taken: list[str] = ["device"]
        self.calls = 0
        self._fails_at = fails_at
        self._free = free

    def free_memory(self) -> int:
        return super().free_memory() if self._free is None else self._free

    def alloc(self, size: int) -> Any:
        return self._counted("memory", lambda: super(CountingDevice, self).alloc(size), "free")

    def load_regions(self, file: int, regions: Sequence[FileRegion], progress: Callable[[int], None]) -> Any:
        return self._counted(
            "regions", lambda: super(CountingDevice, self).load_regions(file, regions, progress), "free"
        )

    def load_module(self, image: bytes) -> Any:
        return self._counted("module", lambda: super(CountingDevice, self).load_module(image), "unload")

    def stream(self) -> Any:
        self._step()
        return super().stream()

    def close(self) -> None:
        self.taken.remove("device")

    def _step(self) -> None:
        self.calls += 1
        if self._fails_at == self.calls - 1:
            raise DeviceError("told to fail")

    def _counted(self, name: str, take: Callable[[], Any], method: str) -> Any:
        self._step()
        thing = take()
        give_back = getattr(thing, method)
        self.taken.append(name)

        def counted() -> None:
            self.taken.remove(name)
            give_back()

        setattr(thing, method, counted)
        return thing
