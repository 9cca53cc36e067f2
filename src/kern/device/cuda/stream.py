"""Streams and events of a GPU."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver

from kern.device.base import DeviceError, Stream
from kern.device.cuda.context import Context


class CudaStream:
    """An independent order of execution: it does not wait for the default stream."""

    def __init__(self, context: Context) -> None:
        """Raises CudaError."""
        self.context = context
        with context:
            created = driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)
            self.handle = context.checked(created, "cuStreamCreate")
        self.number = int(self.handle)
        self._open = True

    def synchronize(self) -> None:
        """Wait until everything given to this stream has run. Raises LaunchError if any of it failed."""
        with self.context:
            self.context.checked(driver.cuStreamSynchronize(self.handle), "cuStreamSynchronize")
        self.context.waited(self.number)

    def close(self) -> None:
        """Wait as `synchronize` does, and destroy the stream. A second call does nothing.

        An error that was raised before is not raised again.
        """
        if not self._open:
            return
        self._open = False
        if self.context.usable:
            try:
                self.synchronize()
            finally:
                if self.context.usable:
                    with self.context:
                        driver.cuStreamDestroy(self.handle)


def own_stream(stream: Stream, context: Context) -> CudaStream:
    """`stream`, which must be of the same device. Raises DeviceError."""
    if not isinstance(stream, CudaStream) or stream.context is not context:
        raise DeviceError(f"this stream is not of cuda:{context.ordinal}", "use a stream of the same device object")
    return stream


class Event:
    """A point in a stream. The context must be current for every method."""

    def __init__(self, context: Context, *, timing: bool = False) -> None:
        """Raises CudaError."""
        flags = driver.CUevent_flags
        flag = flags.CU_EVENT_DEFAULT if timing else flags.CU_EVENT_DISABLE_TIMING
        self._context = context
        self.handle: Any = context.checked(driver.cuEventCreate(flag), "cuEventCreate")

    def record(self, stream: CudaStream) -> None:
        """Make this the point after everything given to `stream` so far."""
        self._context.checked(driver.cuEventRecord(self.handle, stream.handle), "cuEventRecord")

    def passed(self) -> bool:
        """Whether the point has been reached, or none was recorded. Raises LaunchError where a kernel failed."""
        (status,) = driver.cuEventQuery(self.handle)
        if status == driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        self._context.checked((status,), "cuEventQuery")
        return True

    def wait(self) -> None:
        """Wait until the point has been reached. Raises LaunchError where a kernel failed."""
        self._context.checked(driver.cuEventSynchronize(self.handle), "cuEventSynchronize")

    def seconds_since(self, earlier: Event) -> float:
        """Seconds between two points that have been reached, both made with `timing`, to about 0.5 µs."""
        elapsed = driver.cuEventElapsedTime(earlier.handle, self.handle)
        return float(self._context.checked(elapsed, "cuEventElapsedTime")) / 1e3

    def destroy(self) -> None:
        """Destroy it."""
        if self._context.usable:
            driver.cuEventDestroy(self.handle)
