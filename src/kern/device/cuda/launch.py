"""Launch lists in the GPU's form: driver calls with everything bound, made one after another."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

from cuda.bindings import driver

from kern.device.base import KernelLaunch, Launch, LaunchError
from kern.device.cuda.context import Context, described
from kern.device.cuda.module import CudaFunction
from kern.device.cuda.stream import CudaStream, Event

Call = Callable[[], tuple[Any, ...]]
"""Enqueues one launch; the first of what it returns is false where that went well."""

_PARAMS_ALIGNMENT: Final = 16


@dataclass(frozen=True, slots=True)
class CudaOperator:
    """A built-in operator bound to its arguments.

    `enqueue` gives it to a stream, by handle; the first of what it returns is false where that went well.
    """

    name: str
    context: Context
    enqueue: Callable[[int], tuple[Any, ...]]


Bind = Callable[[CudaStream], Call]


@dataclass(frozen=True, slots=True)
class _KernelBind:
    """A kernel launch but for its stream. The driver reads `parameters` through `pointers` at each call."""

    configuration: Any
    function: Any
    parameters: Any
    pointers: int

    def __call__(self, stream: CudaStream) -> Call:
        self.configuration.hStream = stream.handle
        return partial(driver.cuLaunchKernelEx, self.configuration, self.function, self.pointers, 0)


class CudaPrepared:
    """A launch list: parameters packed, configurations built, bound to the stream it was last given to.

    `title` is its first and last launch, by label.
    """

    def __init__(self, binds: Sequence[Bind], labels: Sequence[str]) -> None:
        self._binds = tuple(binds)
        self.labels = tuple(labels)
        self.title = " … ".join(dict.fromkeys((labels[0], labels[-1]))) if labels else "nothing"
        self._stream: CudaStream | None = None
        self._calls: tuple[Call, ...] = ()

    def __len__(self) -> int:
        return len(self._binds)

    def calls(self, stream: CudaStream) -> tuple[Call, ...]:
        """The driver calls, bound to `stream`."""
        if stream is not self._stream:
            self._calls = tuple(bind(stream) for bind in self._binds)
            self._stream = stream
        return self._calls


def prepare(context: Context, launches: Sequence[Launch]) -> CudaPrepared:
    """Put every launch into the driver's form. Raises LaunchError for what this GPU cannot launch."""
    limit = context.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
    with context:
        binds = [_bind(context, launch, limit) for launch in launches]
    return CudaPrepared(binds, [launch.label for launch in launches])


def run(context: Context, prepared: CudaPrepared, stream: CudaStream) -> None:
    """Enqueue the list. The context must be current. Raises LaunchError naming the launch that is refused."""
    calls = prepared.calls(stream)
    for call in calls:
        status = call()[0]
        if status:
            raise _refused(context, prepared.labels[calls.index(call)], status)


def run_checked(context: Context, prepared: CudaPrepared, stream: CudaStream) -> None:
    """Run the list, waiting after each launch. Raises LaunchError naming the one that fails."""
    stream.synchronize()  # what was given before is not this list's fault
    for call, label in zip(prepared.calls(stream), prepared.labels, strict=True):
        status = call()[0]
        if status:
            raise _refused(context, label, status)
        (status,) = driver.cuStreamSynchronize(stream.handle)
        if status:
            raise context.faulted(status, f" in {label}", "see what the kernel is given there")


def profile(context: Context, prepared: CudaPrepared, stream: CudaStream) -> tuple[float, ...]:
    """Run the list with an event between any two launches; the seconds from each event to the next."""
    with context:
        events = [Event(context, timing=True) for _ in range(len(prepared) + 1)]
        try:
            events[0].record(stream)
            for call, label, event in zip(prepared.calls(stream), prepared.labels, events[1:], strict=True):
                status = call()[0]
                if status:
                    raise _refused(context, label, status)
                event.record(stream)
            stream.synchronize()
            return tuple(later.seconds_since(earlier) for earlier, later in pairwise(events))
        finally:
            for event in events:
                event.destroy()


def _refused(context: Context, label: str, status: Any) -> LaunchError:
    """The error for a launch that is not accepted; a driver's status may also tell of an earlier fault."""
    if isinstance(status, Exception):
        return LaunchError(f"{label} cannot be launched: {status}")
    error = context.failure(status, "cuLaunchKernelEx", label)
    if isinstance(error, LaunchError):
        return error
    return LaunchError(f"{label} cannot be launched: cuLaunchKernelEx: {described(status)}")


def _bind(context: Context, launch: Launch, limit: int) -> Bind:
    if isinstance(launch, KernelLaunch):
        return _bind_kernel(context, launch, limit)
    operator = launch.operator
    if not isinstance(operator, CudaOperator) or operator.context is not context:
        raise LaunchError(f"{launch.label}: the operator {operator.name!r} is not of cuda:{context.ordinal}")
    enqueue = operator.enqueue
    return lambda stream: partial(enqueue, stream.number)


def _bind_kernel(context: Context, launch: KernelLaunch, limit: int) -> Bind:
    function = _launchable(context, launch)
    _check_size(launch, function, limit)
    function.opt_in(launch.shared_mem)
    config = _configuration(launch)
    if launch.cooperative:
        _check_resident(context, launch, function, config)
    return _KernelBind(config, function.handle, *_parameters(launch))


def _launchable(context: Context, launch: KernelLaunch) -> CudaFunction:
    function = launch.function
    if not isinstance(function, CudaFunction) or function.module.context is not context:
        raise LaunchError(f"{launch.label}: {function.symbol!r} is not a function of cuda:{context.ordinal}")
    if not function.module.loaded:
        raise LaunchError(f"{launch.label}: the module of {function.symbol!r} has been unloaded")
    if function.layout is not None and function.layout != launch.layout:
        raise LaunchError(
            f"{launch.label}: {function.symbol!r} takes parameters at {function.layout} (offset:size), "
            f"not at {launch.layout}"
        )
    return function


def _check_size(launch: KernelLaunch, function: CudaFunction, limit: int) -> None:
    static, most = function.limits.static_shared_mem or 0, function.limits.max_threads or 0
    if static + launch.shared_mem > limit:
        raise LaunchError(
            f"{launch.label}: {function.symbol!r} asks for {static} + {launch.shared_mem} bytes of shared memory, "
            f"a block has at most {limit}",
            "give the step less shared_mem",
        )
    threads = math.prod(launch.block)
    if threads > most:
        raise LaunchError(
            f"{launch.label}: a block of {threads} threads, {function.symbol!r} runs at most {most}",
            "give the step a smaller block",
        )


def _check_resident(context: Context, launch: KernelLaunch, function: CudaFunction, config: Any) -> None:
    """A cooperative launch needs all its blocks on the GPU at once."""
    if launch.cluster is not None:
        found = driver.cuOccupancyMaxActiveClusters(function.handle, config)
        clusters = context.checked(found, "cuOccupancyMaxActiveClusters", repr(function.symbol))
        room = int(clusters) * math.prod(launch.cluster)
    else:
        each = function.blocks_a_multiprocessor(math.prod(launch.block), launch.shared_mem)
        room = each * context.attribute("MULTIPROCESSOR_COUNT")
    blocks = math.prod(launch.grid)
    if blocks > room:
        raise LaunchError(
            f"{launch.label}: a cooperative launch of {blocks} blocks, and cuda:{context.ordinal} holds {room} "
            f"of {function.symbol!r} at once",
            "give the step a smaller grid, or less shared_mem",
        )


def _configuration(launch: KernelLaunch) -> Any:
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes = launch.shared_mem
    attributes = list(_attributes(launch))
    config.attrs = attributes
    config.numAttrs = len(attributes)
    return config


def _attributes(launch: KernelLaunch) -> list[Any]:
    kinds, attributes = driver.CUlaunchAttributeID, []
    if launch.pdl:
        attributes.append(_attribute(kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION))
        attributes[-1].value.programmaticStreamSerializationAllowed = 1
    if launch.cluster is not None:
        attributes.append(_attribute(kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION))
        dimension = attributes[-1].value.clusterDim
        dimension.x, dimension.y, dimension.z = launch.cluster
    if launch.cooperative:
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
