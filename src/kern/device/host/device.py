"""The host as a device: its memory, modules, operators and launches behind the device protocol."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

from kern.device.base import FileRegion, Function, LaunchError, Prepared, Stream
from kern.device.host import bandwidth, memory
from kern.device.host.crashes import watch
from kern.device.host.launch import Call, HostPrepared, prepare, run
from kern.device.host.module import HostModule
from kern.device.host.target import host_target, processor
from kern.device.host.threads import thread_count
from kern.manifest.counts import counted
from kern.manifest.launches import Launch
from kern.manifest.types import Dim3


class HostStream:
    """An order of execution in which everything has run when its call returns."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing to release."""


@dataclass(frozen=True, slots=True)
class HostPending:
    """A copy of bytes, made when it was requested."""

    data: bytes

    def done(self) -> bool:
        """True."""
        return True

    def wait(self) -> bytes:
        """The bytes."""
        return self.data


class HostGraph:
    """The calls of several launch lists, in order."""

    def __init__(self, calls: tuple[Call, ...]) -> None:
        self._calls = calls

    def launch(self, stream: Stream) -> None:
        """Make the calls again."""
        run(self._calls)

    def free(self) -> None:
        """Drop the calls; launching the graph afterwards does nothing."""
        self._calls = ()


class HostDevice:
    """This machine's cores and memory.

    `threads` is the most that a kernel may use: KERN_THREADS where None, else all the cores available.
    Raises ThreadsError for an invalid number, DeviceUnavailable on a machine that no module can be built for.
    """

    name = "host"
    maps_files = True
    asynchronous = False
    chooses_algorithms = False

    def __init__(self, threads: int | None = None) -> None:
        watch()
        self.threads = thread_count(threads)
        self.target = host_target()

    @property
    def description(self) -> str:
        """The processor's name, its target and the number of threads."""
        return f"{processor()}, {self.target}, {counted(self.threads, 'thread')}"

    def free_memory(self) -> int:
        """Bytes that can still be allocated, without memory that is allocated but not yet touched."""
        return memory.free_memory()

    def alloc(self, size: int) -> memory.HostMemory:
        """`size` bytes, zeroed, at a multiple of ALIGNMENT. Raises OutOfMemory."""
        return memory.allocate(size)

    def load_regions(
        self, file: int, regions: Sequence[FileRegion], progress: Callable[[int], None]
    ) -> memory.HostRegions:
        """Map regions whose offset is a multiple of ALIGNMENT, and copy the others.

        Raises DeviceError where a region is not inside the file or cannot be read, OutOfMemory for copies.
        """
        return memory.load_regions(file, regions, progress)

    def load_module(self, image: bytes) -> HostModule:
        """Load a shared object from memory. This runs its constructors. Raises ModuleError."""
        return HostModule(image)

    def prepare(self, launches: Sequence[Launch]) -> HostPrepared:
        """Bind every launch. `pdl` changes nothing here.

        Raises LaunchError for clusters and cooperative launches, DeviceError for an unknown operator.
        """
        return prepare(launches, self.threads)

    def launch(self, prepared: Prepared, stream: Stream) -> None:
        """Run the list in order; it has run when this returns.

        A kernel that crashes ends the process; `kern.device.host.crashes` names its launch on stderr.
        """
        run(_own(prepared).calls)

    def profile(self, prepared: Prepared, stream: Stream) -> tuple[float, ...]:
        """Run the list; return the seconds of each call. Reading the clock between two calls takes about 0.1 µs."""
        times = [perf_counter()]
        for call in _own(prepared).calls:
            call()
            times.append(perf_counter())
        return tuple(later - earlier for earlier, later in pairwise(times))

    def occupancy(self, function: Function, block: Dim3, shared_mem: int) -> None:
        """None: a host has no multiprocessors."""

    def capture(self, prepared: Sequence[Prepared]) -> HostGraph:
        """One list of all the calls."""
        return HostGraph(tuple(call for each in prepared for call in _own(each).calls))

    def stream(self) -> HostStream:
        """A new order of execution."""
        return HostStream()

    def write(self, address: int, data: memoryview, stream: Stream) -> None:
        """Copy contiguous bytes to `address`."""
        if data.nbytes:
            memory.view(address, data.nbytes)[:] = data.cast("B")

    def read(self, address: int, size: int, stream: Stream) -> HostPending:
        """A copy of `size` bytes."""
        return HostPending(memory.view(address, size).tobytes())

    def zero(self, address: int, size: int, stream: Stream) -> None:
        """Fill with zero bytes."""
        ctypes.memset(address, 0, size)

    def read_bandwidth(self) -> float:
        """Bytes per second of a read-only stream by this device's threads over 512 MB. Raises OutOfMemory."""
        return bandwidth.read_bandwidth(self.threads)

    def close(self) -> None:
        """Nothing to release: memory and modules belong to the caller."""


def _own(prepared: Prepared) -> HostPrepared:
    if not isinstance(prepared, HostPrepared):
        raise LaunchError("another device prepared this launch list", "prepare it on the device that launches it")
    return prepared
