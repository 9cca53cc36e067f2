"""The device protocol: memory, modules, launches, graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kern.manifest import arrays
from kern.manifest.errors import KernError, variant
from kern.manifest.launches import EntryPoint, Launch
from kern.manifest.params import Layout
from kern.manifest.types import Dim3

ALIGNMENT: Final = arrays.ALIGNMENT
"""Every address that a device allocates, and every buffer in its memory, is a multiple of this many bytes."""


class DeviceError(KernError, code="device", help="`kern doctor` shows the devices of this machine"):
    """A device refused something, or failed."""


DeviceUnavailable = variant(DeviceError, "device-unavailable", "The device or its driver is missing.", exit_code=2)
OutOfMemory = variant(DeviceError, "out-of-memory", "The device has less free memory than is needed.")
ModuleError = variant(DeviceError, "module-unusable", "A module does not load, or lacks a symbol.")


class LaunchError(DeviceError, code="launch-failed", help="prepare it with modules and operators of the same device"):
    """A launch failed. The message names it."""


class CudaError(DeviceError, code="cuda-call-failed", help="`nvidia-smi` and the kernel log (dmesg) may say more"):
    """A call to the CUDA driver or one of its libraries failed."""


class Memory(Protocol):
    """A range of device memory."""

    @property
    def address(self) -> int:
        """First byte, as kernels see it."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    def free(self) -> None:
        """Free the range. A second call does nothing."""


@dataclass(frozen=True, slots=True)
class FileRegion:
    """Bytes of an open file that must be readable by kernels."""

    offset: int
    size: int


class LoadedRegions(Protocol):
    """File regions in device memory, each at a multiple of ALIGNMENT."""

    @property
    def addresses(self) -> tuple[int, ...]:
        """The address of each region, in the order requested."""

    @property
    def allocated(self) -> int:
        """Bytes of device memory taken; regions used in place (mapped) take none."""

    def free(self) -> None:
        """Free the memory. A second call does nothing."""


@dataclass(frozen=True, slots=True)
class FunctionLimits:
    """The limits of a function, as the device reports them. None where the device has no such limit."""

    max_threads: int | None = None
    registers: int | None = None
    static_shared_mem: int | None = None


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How much of a multiprocessor a launch fills: resident blocks, and their share of its threads."""

    blocks: int
    share: float


class Function(EntryPoint, Protocol):
    """An entry point of a loaded module, and what the device reports about it."""

    @property
    def layout(self) -> Layout | None:
        """The parameter layout as the device reports it, None where it does not."""

    @property
    def limits(self) -> FunctionLimits:
        """Its limits."""


class Module(Protocol):
    """Code on a device."""

    def function(self, symbol: str) -> Function:
        """The entry point `symbol`. Raises ModuleError where there is none."""

    def unload(self) -> None:
        """Unload the code. A second call does nothing."""


class Prepared(Protocol):
    """A launch list in the device's own form, made once, launched any number of times."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The label of each launch, in order."""

    def __len__(self) -> int: ...


class Stream(Protocol):
    """An order of execution."""

    def synchronize(self) -> None:
        """Wait until everything given to this stream has run. Raises LaunchError if any of it failed."""

    def close(self) -> None:
        """Wait as `synchronize` does, and destroy the stream. A second call does nothing.

        An error that was raised before is not raised again.
        """


class Graph(Protocol):
    """Launch lists recorded in order, replayed as one."""

    def launch(self, stream: Stream) -> None:
        """Replay."""

    def free(self) -> None:
        """Destroy the graph; a replay in progress completes. A second call does nothing."""


class Pending(Protocol):
    """Bytes on their way to the host."""

    def done(self) -> bool:
        """Whether `wait` would return at once."""

    def wait(self) -> bytes:
        """The bytes, once they are there."""


class Device(Protocol):
    """One processor with its memory. Several devices and several users of one device may coexist."""

    @property
    def name(self) -> str:
        """`host`, `cuda:0`, ..."""

    @property
    def description(self) -> str:
        """The processor's name and what it can run, in one line."""

    @property
    def target(self) -> str:
        """What its modules are built for: `x86-64-v3`, `aarch64`, `sm_90`, ..."""

    @property
    def maps_files(self) -> bool:
        """Whether `load_regions` uses aligned regions of a file in place, without allocating memory for them."""

    @property
    def asynchronous(self) -> bool:
        """Whether launches return before they have run, so that the device may be idle between two of them."""

    @property
    def chooses_algorithms(self) -> bool:
        """Whether its built-in operators have several algorithms, whose choice it caches."""

    def free_memory(self) -> int:
        """Bytes that can still be allocated."""

    def alloc(self, size: int) -> Memory:
        """`size` bytes, zeroed, at a multiple of ALIGNMENT. Raises OutOfMemory."""

    def load_regions(self, file: int, regions: Sequence[FileRegion], progress: Callable[[int], None]) -> LoadedRegions:
        """Make regions of the open file descriptor `file` readable by kernels.

        A device that can use the file's pages in place does so, for each region whose offset is a multiple
        of ALIGNMENT. `progress` is called with the bytes loaded since its last call. Raises OutOfMemory.
        """

    def load_module(self, image: bytes) -> Module:
        """Load code from memory: the bytes that were checked. Raises ModuleError."""

    def prepare(self, launches: Sequence[Launch]) -> Prepared:
        """Put a launch list into the device's own form.

        What operators need is chosen and allocated here, not at launch. Raises LaunchError for what the device
        cannot launch, DeviceError for an unknown operator.
        """

    def launch(self, prepared: Prepared, stream: Stream) -> None:
        """Run the list in order. Raises LaunchError naming a launch that is refused.

        An error of a kernel is raised by whatever waits next; where the list has one launch, it names that launch.
        """

    def profile(self, prepared: Prepared, stream: Stream) -> tuple[float, ...]:
        """Run the list in order, and wait; return the seconds that each launch took.

        Measuring prevents launches from overlapping: the sum need not equal the time of the whole list.
        """

    def occupancy(self, function: Function, block: Dim3, shared_mem: int) -> Occupancy | None:
        """How a launch of these blocks fills a multiprocessor, None where the device has no multiprocessors.

        Zero blocks where one does not fit on a multiprocessor.
        """

    def capture(self, prepared: Sequence[Prepared]) -> Graph:
        """Record launch lists, in order, as one graph."""

    def stream(self) -> Stream:
        """A new order of execution."""

    def write(self, address: int, data: memoryview, stream: Stream) -> None:
        """Copy bytes to the device, ordered on `stream`; `data` may be reused when the call returns."""

    def read(self, address: int, size: int, stream: Stream) -> Pending:
        """Copy bytes to the host, ordered on `stream`."""

    def zero(self, address: int, size: int, stream: Stream) -> None:
        """Fill with zero bytes, ordered on `stream`."""

    def read_bandwidth(self) -> float:
        """Bytes per second at which uncached memory can be read, measured by this call."""

    def close(self) -> None:
        """Release what the device object itself holds. A second call does nothing."""
