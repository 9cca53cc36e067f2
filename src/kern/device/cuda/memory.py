"""Device memory: plain allocations."""

from __future__ import annotations

from cuda.bindings import driver

from kern.device.base import DeviceError, OutOfMemory
from kern.device.cuda.context import Context


class CudaMemory:
    """A range of device memory, its content undefined."""

    def __init__(self, context: Context, size: int) -> None:
        """Raises OutOfMemory before allocating anything where `size` is more than is free."""
        self._context = context
        self.size = size
        with context:
            free = free_memory(context)
            if size > free:
                raise _out_of_memory(context, size, free)
            status, address = driver.cuMemAlloc(max(size, 1))
            if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                raise _out_of_memory(context, size, free_memory(context))
            self.address = int(context.checked((status, address), "cuMemAlloc", f"{size} bytes"))
        self._held = True

    def free(self) -> None:
        """Free the range. A second call does nothing."""
        if self._held:
            self._held = False
            if self._context.usable:
                with self._context:
                    freed = driver.cuMemFree(self.address)
                    self._context.checked(freed, "cuMemFree", f"{self.size} bytes")


def free_memory(context: Context) -> int:
    """Bytes that can still be allocated. The context must be current."""
    free, _ = context.checked(driver.cuMemGetInfo(), "cuMemGetInfo")
    return int(free)


def _out_of_memory(context: Context, planned: int, free: int) -> DeviceError:
    return OutOfMemory(
        f"{planned:,} bytes are needed on cuda:{context.ordinal} and {free:,} are free",
        "lower the capacity, or end other programs that use the GPU",
    )
