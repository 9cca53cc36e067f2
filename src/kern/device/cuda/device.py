"""An NVIDIA GPU as a device: its context, memory, modules, operators and launches behind the device protocol."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cuda.bindings import driver

from kern.device.base import FileRegion, Function, LaunchError, Occupancy, Prepared, Stream
from kern.device.cuda import bandwidth, graph, launch, weight_upload
from kern.device.cuda.context import Context, driver_version
from kern.device.cuda.launch import BoundOperator
from kern.device.cuda.memory import CudaMemory, free_memory
from kern.device.cuda.module import CudaFunction, CudaModule
from kern.device.cuda.staging import CudaPending, Staging
from kern.device.cuda.stream import CudaStream, own_stream
from kern.device.cuda.weight_upload import CudaRegions
from kern.manifest.launches import Launch
from kern.manifest.types import Dim3

if TYPE_CHECKING:
    from kern.device.cuda.operators import Products


class CudaDevice:
    """GPU `ordinal` of this machine.

    With `tune`, the algorithms of built-in operators are chosen again, and the user's cache of them is updated.
    Raises DeviceUnavailable where there is no driver or no such GPU.
    """

    maps_files = False
    asynchronous = True
    chooses_algorithms = True

    def __init__(self, ordinal: int = 0, *, tune: bool = False) -> None:
        self.name = f"cuda:{ordinal}"
        self._context = Context(ordinal)
        self._tune = tune
        self._products: Products | None = None
        self._staging = Staging(self._context)
        self._filling = CudaStream(self._context)
        self._streams = [self._filling]
        self.target = "sm_{}{}".format(
            self._context.attribute("COMPUTE_CAPABILITY_MAJOR"), self._context.attribute("COMPUTE_CAPABILITY_MINOR")
        )

    @property
    def description(self) -> str:
        """The GPU's name, its target and memory, and the CUDA version that its driver supports."""
        memory = self._context.total_memory() / 2**30
        return f"{self._context.name()}, {self.target}, {memory:.1f} GiB, driver for CUDA {driver_version()}"

    def free_memory(self) -> int:
        """Bytes that can still be allocated."""
        with self._context:
            return free_memory(self._context)

    def alloc(self, size: int) -> CudaMemory:
        """`size` bytes, zeroed, at a multiple of ALIGNMENT. Raises OutOfMemory before allocating anything."""
        memory = CudaMemory(self._context, size)
        try:
            self.zero(memory.address, size, self._filling)
            self._filling.synchronize()
        except BaseException:
            memory.free()
            raise
        return memory

    def load_regions(self, file: int, regions: Sequence[FileRegion], progress: Callable[[int], None]) -> CudaRegions:
        """Copy the regions to one arena on the GPU.

        Raises DeviceError where a region is not inside the file or cannot be read, OutOfMemory.
        """
        return weight_upload.upload(self._context, file, regions, progress)

    def load_module(self, image: bytes) -> CudaModule:
        """Load a cubin from memory. Raises ModuleError."""
        return CudaModule(self._context, image)

    def prepare(self, launches: Sequence[Launch]) -> launch.CudaPrepared:
        """Bind every launch; a built-in operator has its algorithm chosen, and its workspace allocated, here.

        The operators of a device share a workspace: lists that hold any run on one stream at a time. Raises
        LaunchError for what this GPU cannot launch, DeviceError for an unknown operator, DeviceUnavailable where
        cublasLt is not installed, NoCacheFolder, OutOfMemory.
        """
        return launch.prepare(self._context, launches, self._bind_operator)

    def launch(self, prepared: Prepared, stream: Stream) -> None:
        """Enqueue the list.

        Raises LaunchError for a launch that is refused. An error of a kernel is raised by whatever waits next.
        After it, nothing more runs in this process on this GPU.
        """
        own, listed = own_stream(stream, self._context), _own(prepared)
        with self._context:
            self._context.launched(own.number, listed.title, len(listed))
            launch.run(self._context, listed, own)

    def profile(self, prepared: Prepared, stream: Stream) -> tuple[float, ...]:
        """Run the list with an event between any two launches; return the seconds of each, to about 0.5 µs.

        The events prevent launches from overlapping, also by programmatic dependent launch, and each launch's time
        includes the gap before it where the host is slower than the GPU: a list's sum need not equal its run time.
        """
        listed, own = _own(prepared), own_stream(stream, self._context)
        self._context.launched(own.number, listed.title, len(listed))
        return launch.profile(self._context, listed, own)

    def occupancy(self, function: Function, block: Dim3, shared_mem: int) -> Occupancy:
        """Blocks resident on one multiprocessor, and their share of its threads; zero where no block fits."""
        if not isinstance(function, CudaFunction):
            raise LaunchError(f"{function.symbol!r} is not a function of {self.name}", "load its module on this device")
        threads = math.prod(block)
        with self._context:
            if not launch.fits(self._context, function, threads, shared_mem):
                return Occupancy(0, 0.0)
            function.opt_in(shared_mem)
            blocks = function.blocks_per_multiprocessor(threads, shared_mem)
        most = self._context.attribute("MAX_THREADS_PER_MULTIPROCESSOR")
        return Occupancy(blocks, blocks * (-(-threads // 32) * 32) / most)

    def capture(self, prepared: Sequence[Prepared]) -> graph.CudaGraph:
        """Record launch lists, in order, as one graph; nothing runs."""
        return graph.capture(self._context, [_own(each) for each in prepared])

    def stream(self) -> CudaStream:
        """A new order of execution, independent of the default stream."""
        stream = CudaStream(self._context)
        self._streams.append(stream)
        return stream

    def write(self, address: int, data: memoryview, stream: Stream) -> None:
        """Copy contiguous bytes to the device through pinned memory; waits only where 16 MB are in flight."""
        if data.nbytes:
            self._staging.write(address, data.cast("B"), own_stream(stream, self._context))

    def read(self, address: int, size: int, stream: Stream) -> CudaPending:
        """Copy bytes to pinned memory, ordered on `stream`; returns at once."""
        return self._staging.read(address, size, own_stream(stream, self._context))

    def zero(self, address: int, size: int, stream: Stream) -> None:
        """Fill with zero bytes, ordered on `stream`."""
        if size:
            with self._context:
                filled = driver.cuMemsetD8Async(address, 0, size, own_stream(stream, self._context).handle)
                self._context.checked(filled, "cuMemsetD8Async", f"{size} bytes")

    def read_bandwidth(self) -> float:
        """Bytes per second of a read-only stream over 8 GiB, or over what is free if less. Raises OutOfMemory."""
        return bandwidth.read_bandwidth(self._context, self.target, self.prepare)

    def _bind_operator(self, name: str, arguments: Sequence[int]) -> BoundOperator:
        if self._products is None:
            from kern.device.cuda.operators import Products

            self._products = Products(self._context, tune=self._tune)
        return self._products.bind(name, arguments)

    def close(self) -> None:
        """Release streams, staging and operators, then the context. A second call does nothing."""
        try:
            for stream in self._streams:
                stream.close()
        finally:
            if self._products is not None:
                self._products.close()
                self._products = None
            self._staging.close()
            self._context.release()


def _own(prepared: Prepared) -> launch.CudaPrepared:
    if not isinstance(prepared, launch.CudaPrepared):
        raise LaunchError("another device prepared this launch list", "prepare it on the device that launches it")
    return prepared
