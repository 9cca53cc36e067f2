"""Programs seen launch by launch: the memory that each launch may access, and the time that it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kern.manifest.arrays import array_bytes
from kern.manifest.effects import Access, effects
from kern.manifest.expressions import evaluate
from kern.manifest.params import DTYPE_BYTES, DType
from kern.manifest.types import Dispatch, Manifest
from kern.runtime.arrays import NUMPY_DTYPES, Array
from kern.runtime.memory.address_table import ProgramAddresses
from kern.runtime.memory.sizes import dimensions

ReadMemory = Callable[[int, int], bytes]
"""An address and a size → the bytes there, once everything given to the device has run."""


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """`size` bytes of device memory, from `address` on, that a launch may access as `declared` says.

    Where the manifest does not say how far a launch reaches, they are all from the offset to the end of the array at
    these symbol values, or to the end of the state.
    """

    declared: Access
    address: int
    size: int
    dtype: DType
    shape: tuple[int, ...]
    _read: ReadMemory = field(repr=False, compare=False)

    def read(self) -> bytes:
        """The bytes now. To be called by the hook: other arrays may use this memory afterwards."""
        return self._read(self.address, self.size)

    def array(self) -> Array:
        """As `read`, as an array that must not be written to.

        It has the declared shape where the whole array is accessed, otherwise one dimension; a state is u8.
        """
        return np.frombuffer(self.read(), NUMPY_DTYPES[self.dtype]).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class SteppedLaunch:
    """A launch that is about to run, or has run: step `step` of dispatch number `dispatch` of `program` at `values`.

    `kernel` is the dispatched kernel entry, `symbol` what the step launches, `extern:NAME` for a built-in operator.
    """

    label: str
    program: str
    values: Mapping[str, int]
    dispatch: int
    kernel: str
    step: int
    symbol: str
    accesses: tuple[MemoryAccess, ...]


Hook = Callable[[SteppedLaunch], object]


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """One launch of a program: its label, the kernel entry and step it comes from, and the seconds it took."""

    label: str
    kernel: str
    step: int
    seconds: float


def stepped_launches(
    manifest: Manifest,
    program: str,
    values: Mapping[str, int],
    labels: Sequence[str],
    addresses: ProgramAddresses,
    states: Mapping[str, int],
    read: ReadMemory,
) -> Iterator[SteppedLaunch]:
    """The launches of `program` at `values`, in order; `states` are the sizes of states in bytes."""
    for label, launch in zip(labels, effects(manifest, program), strict=True):
        dispatch = manifest.programs[program].dispatches[launch.dispatch]
        accesses = tuple(
            MemoryAccess(
                each,
                addresses.of(launch.dispatch, each),
                *_extent(manifest, dispatch, each, values, states),
                read,
            )
            for each in launch.accesses
        )
        symbol = manifest.kernels[dispatch.kernel].impl.steps[launch.step].symbol
        yield SteppedLaunch(label, program, values, launch.dispatch, dispatch.kernel, launch.step, symbol, accesses)


def launch_times(
    manifest: Manifest, program: str, labels: Sequence[str], seconds: Sequence[float]
) -> tuple[LaunchTime, ...]:
    """The launches of `program` in the order in which it is lowered, each with its label and time."""
    dispatches = manifest.programs[program].dispatches
    return tuple(
        LaunchTime(label, dispatches[launch.dispatch].kernel, launch.step, taken)
        for launch, label, taken in zip(effects(manifest, program), labels, seconds, strict=True)
    )


def _extent(
    manifest: Manifest, dispatch: Dispatch, access: Access, values: Mapping[str, int], states: Mapping[str, int]
) -> tuple[int, DType, tuple[int, ...]]:
    """The bytes that an access spans, and their dtype and shape."""
    if access.kind == "state":
        dtype: DType = "u8"
        shape: tuple[int, ...] = (states[access.name],)
    else:
        arrays = manifest.buffers if access.kind == "buffer" else manifest.kernels[dispatch.kernel].impl.scratch
        dtype, shape = arrays[access.name].dtype, dimensions(arrays[access.name].shape, values)
    whole = array_bytes(dtype, shape)
    size = max(0, whole - access.offset)
    if access.extent is not None:
        size = math.prod(evaluate(factor, values) for factor in access.extent)
    if (access.offset, size) == (0, whole):
        return size, dtype, shape
    if (access.offset | size) % DTYPE_BYTES[dtype]:
        return size, "u8", (size,)
    return size, dtype, (size // DTYPE_BYTES[dtype],)
