"""What a device is to everything above it: memory, modules, operators, launches, graphs."""

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
"""Every address that a device gives out, and every buffer placed in it, is a multiple of this many bytes."""


class DeviceError(KernError, code="device"):
    """A device refused something, or failed."""


DeviceUnavailable = variant(DeviceError, "device-unavailable", "The device or its driver is missing.", exit_code=2)
OutOfMemory = variant(DeviceError, "out-of-memory", "The device has less free memory than is needed.")
ModuleError = variant(DeviceError, "module-unusable", "A module does not load, or lacks a symbol.")


class LaunchError(DeviceError, code="launch-failed"):
    """A launch failed. The message names it."""


class CudaError(DeviceError, code="cuda-call-failed"):
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
        """Give the range back. A second call does nothing."""


@dataclass(frozen=True, slots=True)
class FileRegion:
    """Bytes of an open file that must be readable by kernels."""

    offset: int
    size: int


class PlacedRegions(Protocol):
    """File regions in device memory, each at a multiple of ALIGNMENT."""

    @property
    def addresses(self) -> tuple[int, ...]:
        """One address a region, in the order asked for."""

    @property
    def allocated(self) -> int:
        """Bytes of device memory taken; regions used in place (mapped) take none."""

    def free(self) -> None:
        """Give the memory back. A second call does nothing."""


@dataclass(frozen=True, slots=True)
class FunctionLimits:
    """What the device itself says of a function. None where the device has no such notion."""

    max_threads: int | None = None
    registers: int | None = None
    static_shared_mem: int | None = None


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How much of a multiprocessor a launch fills: blocks resident at once, and the share of its threads."""

    blocks: int
    share: float


class Function(EntryPoint, Protocol):
    """An entry point of a loaded module, and what the device reports about it."""

    @property
    def layout(self) -> Layout | None:
        """The parameter layout as the device reports it, None where it cannot tell."""

    @property
    def limits(self) -> FunctionLimits:
        """What the device says it needs."""


class Module(Protocol):
    """Code on a device."""

    def function(self, symbol: str) -> Function:
        """The entry point `symbol`. Raises ModuleError where there is none."""

    def unload(self) -> None:
        """Forget the code. A second call does nothing."""


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
        """Wait as `synchronize` does, and give the stream back. A second call does nothing.

        A failure that was raised before is not raised again.
        """


class Graph(Protocol):
    """Launch lists recorded in order, replayed as one."""

    def launch(self, stream: Stream) -> None:
        """Replay."""

    def free(self) -> None:
        """Forget the graph; a replay under way goes on. A second call does nothing."""


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
        """The processor's own name and what it can run, in a line."""

    @property
    def target(self) -> str:
        """What its modules are built for: `x86-64-v3`, `aarch64`, `sm_90`, ..."""

    @property
    def maps_files(self) -> bool:
        """Whether `place` uses aligned regions of a file in place, and takes no memory for them."""

    @property
    def asynchronous(self) -> bool:
        """Whether launches return before they have run, so that the device may be idle between two of them."""

    @property
    def chooses_algorithms(self) -> bool:
        """Whether its built-in operators come in several algorithms, of which it keeps a choice."""

    def free_memory(self) -> int:
        """Bytes that can still be allocated."""

    def alloc(self, size: int) -> Memory:
        """`size` bytes, zeroed, at a multiple of ALIGNMENT. Raises OutOfMemory."""

    def place(self, file: int, regions: Sequence[FileRegion], progress: Callable[[int], None]) -> PlacedRegions:
        """Make regions of the open file descriptor `file` readable by kernels.

        A device that can use the file's pages in place does so, for each region whose offset is a multiple
        of ALIGNMENT. `progress` is told the bytes done since its last call. Raises OutOfMemory.
        """

    def load_module(self, image: bytes) -> Module:
        """Load code from memory: the very bytes that were checked. Raises ModuleError."""

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
        """Run the list in order, and wait; the seconds that each launch took.

        Measuring keeps launches apart that could overlap: the sum need not equal the list's own time.
        """

    def occupancy(self, function: Function, block: Dim3, shared_mem: int) -> Occupancy | None:
        """How a launch of these blocks fills a multiprocessor, None where the device has no such notion.

        No blocks where one is more than a multiprocessor holds.
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
        """Bytes per second that a read-only stream over fresh memory reaches now, measured by this call."""

    def close(self) -> None:
        """Give back what the device object itself holds. A second call does nothing."""
