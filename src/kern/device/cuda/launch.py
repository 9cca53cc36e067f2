"""Launch lists in the GPU's form: driver calls with everything bound, made one after another."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any, Final

from cuda.bindings import driver

from kern.device.base import DeviceError, LaunchError
from kern.device.cuda.context import Context, described
from kern.device.cuda.module import CudaFunction
from kern.device.cuda.stream import CudaStream, Event
from kern.manifest.launches import KernelLaunch, Launch
from kern.manifest.types import Dim3

Call = Callable[[], int]
"""Enqueues one launch; the library's status, 0 where it is accepted."""

_PARAMS_ALIGNMENT: Final = 16


@dataclass(frozen=True, slots=True)
class _BoundKernel:
    """A kernel launch except its stream, which `configuration` has. The driver reads `parameters` at each call."""

    configuration: Any
    parameters: Any
    call: Call

    def on(self, stream: CudaStream) -> Call:
        self.configuration.hStream = stream.handle
        return self.call

    def refusal(self, context: Context, status: int) -> DeviceError | str:
        """The error of an earlier kernel where that is the cause; otherwise the driver's reason."""
        result = driver.CUresult(status)
        error = context.failure(result, "cuLaunchKernelEx")
        return error if isinstance(error, LaunchError) else f"cuLaunchKernelEx: {described(result)}"


@dataclass(frozen=True, slots=True)
class BoundOperator:
    """A call of a built-in operator except its stream.

    `enqueue` gives it to a stream, by handle, and returns the library's status: 0, or one that `described` explains.
    """

    enqueue: Callable[[ctypes.c_void_p], int]
    described: Callable[[int], str]

    def on(self, stream: CudaStream) -> Call:
        """The call, bound to `stream`."""
        return partial(self.enqueue, ctypes.c_void_p(stream.number))

    def refusal(self, context: Context, status: int) -> DeviceError | str:
        """The error of an earlier kernel where that is the cause; otherwise the library's reason."""
        (result,) = driver.cuCtxSynchronize()
        error = context.failure(result, "cuCtxSynchronize") if result else None
        return error if isinstance(error, LaunchError) else self.described(status)


_Bound = _BoundKernel | BoundOperator

BindOperator = Callable[[str, Sequence[int]], BoundOperator]
"""Binds the operator of a name to addresses and scalars."""


class CudaPrepared:
    """A launch list: parameters packed, configurations built, bound to the stream of the last launch.

    `title` is the labels of its first and last launch.
    """

    def __init__(self, launches: Sequence[_Bound], labels: Sequence[str]) -> None:
        self._launches = tuple(launches)
        self.labels = tuple(labels)
        self.title = " … ".join(dict.fromkeys((labels[0], labels[-1]))) if labels else "nothing"
        self._stream: CudaStream | None = None
        self._calls: tuple[Call, ...] = ()

    def __len__(self) -> int:
        return len(self._launches)

    def calls(self, stream: CudaStream) -> tuple[Call, ...]:
        """The calls, bound to `stream`."""
        if stream is not self._stream:
            self._calls = tuple(launch.on(stream) for launch in self._launches)
            self._stream = stream
        return self._calls

    def refused(self, context: Context, call: Call, status: int) -> DeviceError:
        """The error for a call that is not accepted; its status may be that of an earlier kernel's error."""
        index = self._calls.index(call)
        said = self._launches[index].refusal(context, status)
        if isinstance(said, DeviceError):
            return said
        help = "check the step's grid, block and launch attributes"
        return LaunchError(f"{self.labels[index]} cannot be launched: {said}", help)


def prepare(context: Context, launches: Sequence[Launch], bind_operator: BindOperator) -> CudaPrepared:
    """Put every launch into the driver's form. Raises LaunchError for what this GPU cannot launch.

    Errors of `bind_operator` pass through.
    """
    limit = context.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    with context:
        bound = [
            _bind_kernel(context, launch, limit)
            if isinstance(launch, KernelLaunch)
            else bind_operator(launch.name, launch.arguments)
            for launch in launches
        ]
    return CudaPrepared(bound, [launch.label for launch in launches])


def run(context: Context, prepared: CudaPrepared, stream: CudaStream) -> None:
    """Enqueue the list. The context must be current. Raises LaunchError naming a launch that is refused."""
    for call in prepared.calls(stream):
        if status := call():
            raise prepared.refused(context, call, status)


def profile(context: Context, prepared: CudaPrepared, stream: CudaStream) -> tuple[float, ...]:
    """Run the list with an event between any two launches; return the seconds between events."""
    with context:
        events = [Event(context, timing=True) for _ in range(len(prepared) + 1)]
        try:
            events[0].record(stream)
            for call, event in zip(prepared.calls(stream), events[1:], strict=True):
                if status := call():
                    raise prepared.refused(context, call, status)
                event.record(stream)
            stream.synchronize()
            return tuple(later.seconds_since(earlier) for earlier, later in pairwise(events))
        finally:
            for event in events:
                event.destroy()


def _bind_kernel(context: Context, launch: KernelLaunch, limit: int) -> _BoundKernel:
    function = _launchable(context, launch)
    _check_size(launch, function, limit)
    function.opt_in(launch.shared_mem)
    config = _configuration(launch)
    if launch.cooperative:
        _check_resident(context, launch, function, config)
    parameters, pointers = _parameters(launch)
    addresses = (config.getPtr(), int(function.handle), pointers)
    return _BoundKernel(config, parameters, partial(_cu_launch_kernel_ex(), *map(_argument, addresses), None))


@cache
def _cu_launch_kernel_ex() -> Callable[..., int]:
    """The driver's cuLaunchKernelEx through ctypes: 0.3 µs per call, against 0.6 µs through the bindings."""
    return ctypes.CDLL("libcuda.so.1")["cuLaunchKernelEx"]


def _argument(address: int) -> Any:
    """An address in the form that ctypes passes on without converting."""
    return ctypes.byref(ctypes.c_char.from_address(address))


def _launchable(context: Context, launch: KernelLaunch) -> CudaFunction:
    function = launch.function
    if not isinstance(function, CudaFunction) or function.module.context is not context:
        raise LaunchError(
            f"{launch.label}: {function.symbol!r} is not a function of cuda:{context.ordinal}",
            "load its module on the device that launches it",
        )
    if not function.module.loaded:
        raise LaunchError(
            f"{launch.label}: the module of {function.symbol!r} has been unloaded",
            "unload a module only after its last launch",
        )
    if function.layout is not None and function.layout != launch.layout:
        raise LaunchError(
            f"{launch.label}: {function.symbol!r} takes parameters at {function.layout} (offset:size), "
            f"not at {launch.layout}",
            "correct the step's params, or use the kernel file that they describe",
        )
    return function


def fits(context: Context, function: CudaFunction, threads: int, shared_mem: int) -> bool:
    """Whether a block of `threads` with `shared_mem` bytes of dynamic shared memory can be launched at all."""
    limits, limit = function.limits, context.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    return threads <= (limits.max_threads or 0) and (limits.static_shared_mem or 0) + shared_mem <= limit


def _check_size(launch: KernelLaunch, function: CudaFunction, limit: int) -> None:
    static, most = function.limits.static_shared_mem or 0, function.limits.max_threads or 0
    if static + launch.shared_mem > limit:
        raise LaunchError(
            f"{launch.label}: {function.symbol!r} needs {static} + {launch.shared_mem} bytes of shared memory; "
            f"the limit per block is {limit}",
            "reduce the step's shared_mem",
        )
    threads = math.prod(launch.block)
    if threads > most:
        raise LaunchError(
            f"{launch.label}: the block has {threads} threads; {function.symbol!r} allows at most {most}",
            "reduce the step's block",
        )


def _check_resident(context: Context, launch: KernelLaunch, function: CudaFunction, config: Any) -> None:
    """A cooperative launch needs all its blocks on the GPU at once."""
    if launch.cluster is not None:
        found = driver.cuOccupancyMaxActiveClusters(function.handle, config)
        clusters = context.checked(found, "cuOccupancyMaxActiveClusters", repr(function.symbol))
        room = int(clusters) * math.prod(launch.cluster)
    else:
        each = function.blocks_per_multiprocessor(math.prod(launch.block), launch.shared_mem)
        room = each * context.attribute("MULTIPROCESSOR_COUNT")
    blocks = math.prod(launch.grid)
    if blocks > room:
        raise LaunchError(
            f"{launch.label}: a cooperative launch of {blocks} blocks; cuda:{context.ordinal} holds {room} "
            f"of {function.symbol!r} at once",
            "reduce the step's grid or shared_mem",
        )


def _configuration(launch: KernelLaunch) -> Any:
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes = launch.shared_mem
    attributes = _attributes(launch.pdl, launch.cluster, launch.cooperative)
    config.attrs = attributes
    config.numAttrs = len(attributes)
    return config


@cache
def _attributes(pdl: bool, cluster: Dim3 | None, cooperative: bool) -> list[Any]:
    """The driver's form of launch attributes. Making one takes longer than the rest of a configuration."""
    kinds, attributes = driver.CUlaunchAttributeID, []
    if pdl:
        attributes.append(_attribute(kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION))
        attributes[-1].value.programmaticStreamSerializationAllowed = 1
    if cluster is not None:
        attributes.append(_attribute(kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION))
        dimension = attributes[-1].value.clusterDim
        dimension.x, dimension.y, dimension.z = cluster
    if cooperative:
        attributes.append(_attribute(kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE))
        attributes[-1].value.cooperative = 1
    return attributes


def _attribute(kind: Any) -> Any:
    attribute = driver.CUlaunchAttribute()
    attribute.id = kind
    return attribute


def _parameters(launch: KernelLaunch) -> tuple[Any, int]:
    """One block of memory with the parameter values and the array of pointers to them; the array's address."""
    pointers = -(-len(launch.params) // 8) * 8
    count = len(launch.layout.offsets)
    block = ctypes.create_string_buffer(_PARAMS_ALIGNMENT + pointers + 8 * count)
    first = -(-ctypes.addressof(block) // _PARAMS_ALIGNMENT) * _PARAMS_ALIGNMENT
    ctypes.memmove(first, launch.params, len(launch.params))
    table = struct.pack(f"={count}Q", *(first + offset for offset in launch.layout.offsets))
    ctypes.memmove(first + pointers, table, len(table))
    return block, first + pointers
