"""Copies between host and device, through pinned memory that is kept and reused."""

from __future__ import annotations

import ctypes
from collections import defaultdict, deque
from typing import Final

from cuda.bindings import driver

from kern.device.cuda.context import Context
from kern.device.cuda.stream import CudaStream, Event

_SMALLEST: Final = 4 << 10
_LARGEST: Final = 4 << 20
"""Bytes of the largest buffer that is kept. A longer write is split, a longer read gets its own buffer."""

_POOL_BYTES: Final = 16 << 20
"""Bytes of pinned memory kept for each size of buffer; past that, a write waits for the oldest copy."""


class Pinned:
    """Pinned host memory, with the event after which it may be reused. The context must be current."""

    def __init__(self, context: Context, size: int) -> None:
        """Raises CudaError where the host has too little memory."""
        self._context = context
        self.size = size
        self.address = int(context.checked(driver.cuMemHostAlloc(size, 0), "cuMemHostAlloc", f"{size} bytes"))
        self.view = memoryview((ctypes.c_ubyte * size).from_address(self.address)).cast("B")
        self.event = Event(context)

    def send(self, address: int, size: int, stream: CudaStream) -> None:
        """Copy the first `size` bytes to the device, ordered on `stream`."""
        copied = driver.cuMemcpyHtoDAsync(address, self.address, size, stream.handle)
        self._context.checked(copied, "cuMemcpyHtoDAsync", f"{size} bytes")
        self.event.record(stream)

    def receive(self, address: int, size: int, stream: CudaStream) -> None:
        """Copy `size` bytes from the device, ordered on `stream`."""
        if size:
            copied = driver.cuMemcpyDtoHAsync(self.address, address, size, stream.handle)
            self._context.checked(copied, "cuMemcpyDtoHAsync", f"{size} bytes")
        self.event.record(stream)

    def free(self) -> None:
        """Free it, once its copy is done."""
        if self._context.usable:
            self.event.wait()
            self.event.destroy()
            self._context.checked(driver.cuMemFreeHost(self.address), "cuMemFreeHost")


class Staging:
    """Pinned buffers by size, a power of two; those with a copy in flight are at the end of their queue."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._resting: defaultdict[int, deque[Pinned]] = defaultdict(deque)
        self._made: defaultdict[int, int] = defaultdict(int)

    def write(self, address: int, data: memoryview, stream: CudaStream) -> None:
        """Copy bytes to the device, ordered on `stream`; `data` may be reused when the call returns."""
        with self._context:
            for start in range(0, len(data), _LARGEST):
                piece = data[start : start + _LARGEST]
                pinned = self._take(len(piece))
                try:
                    pinned.view[: len(piece)] = piece
                    pinned.send(address + start, len(piece), stream)
                finally:
                    self.give(pinned)

    def read(self, address: int, size: int, stream: CudaStream) -> CudaPending:
        """Copy bytes to the host, ordered on `stream`."""
        with self._context:
            pinned = self._take(max(size, 1))
            try:
                pinned.receive(address, size, stream)
            except BaseException:
                self.give(pinned)
                raise
        return CudaPending(self._context, self, pinned, size, stream.number)

    def give(self, pinned: Pinned) -> None:
        """Return a buffer to the pool; it is reused when its event has passed."""
        if pinned.size <= _LARGEST:
            self._resting[pinned.size].append(pinned)
        elif self._context.usable:
            with self._context:
                pinned.free()

    def close(self) -> None:
        """Free all buffers that no pending read uses."""
        if self._context.usable:
            with self._context:
                for queue in self._resting.values():
                    for pinned in queue:
                        pinned.free()
        self._resting.clear()

    def _take(self, size: int) -> Pinned:
        if size > _LARGEST:
            return Pinned(self._context, size)
        room = max(_SMALLEST, 1 << (size - 1).bit_length())
        resting = self._resting[room]
        full = self._made[room] * room >= _POOL_BYTES
        if resting and (full or resting[0].event.passed()):
            pinned = resting.popleft()
            pinned.event.wait()
            return pinned
        self._made[room] += 1
        return Pinned(self._context, room)


class CudaPending:
    """Bytes that are being copied from the device."""

    def __init__(self, context: Context, staging: Staging, pinned: Pinned, size: int, stream: int) -> None:
        self._context = context
        self._staging = staging
        self._pinned: Pinned | None = pinned
        self._size = size
        self._stream = stream
        self._data = b""

    def done(self) -> bool:
        """Whether `wait` would return at once. Raises LaunchError if what was to produce the bytes failed."""
        if self._pinned is None:
            return True
        with self._context:
            return self._pinned.event.passed()

    def wait(self) -> bytes:
        """The bytes, once they are there. Raises LaunchError if what was to produce them failed."""
        if self._pinned is not None:
            with self._context:
                self._pinned.event.wait()
            self._data = self._pinned.view[: self._size].tobytes()
            self._staging.give(self._pinned)
            self._pinned = None
        return self._data

    def __del__(self) -> None:
        # A read that nobody waited for returns its buffer too.
        if self._pinned is not None and self._context.usable:
            self._staging.give(self._pinned)
