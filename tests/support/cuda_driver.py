"""The CUDA driver for tests without a GPU: memory is the host's, and a cubin is a host module with another header.

Work given to a stream waits there until somebody waits for it, as on a GPU. A kernel whose name begins with `wild`
fails when it runs, and every call fails after that.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import struct
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from cuda.bindings import driver

from kern.device.cuda import launch
from kern.device.cuda.device import CudaDevice
from kern.device.cuda.module import CudaModule
from kern.device.host.target import host_target
from kern.manifest.params import Layout, Param, layout

STATUS = driver.CUresult
OK = STATUS.CUDA_SUCCESS
TOTAL_MEMORY = 1 << 30
ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "MULTIPROCESSOR_COUNT": 132,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
}
FUNCTION_ATTRIBUTES = {
    "MAX_THREADS_PER_BLOCK": 1024,
    "NUM_REGS": 32,
    "SHARED_SIZE_BYTES": 0,
    "MAX_DYNAMIC_SHARED_SIZE_BYTES": 49152,
}
_HEADER = struct.pack("<4s14xH12xQQ6xHHHH2x", b"\x7fELF", 190, 0, 0, 0, 0, 0, 0)
_LAUNCH = struct.Struct("=8I")

Work = Callable[[], None]


def cubin(module: bytes) -> bytes:
    """A host module as a cubin of this driver."""
    return _HEADER + module


@dataclass
class Function:
    """A kernel of a loaded module."""

    symbol: str
    entry: Any
    layout: Layout
    dynamic: int = FUNCTION_ATTRIBUTES["MAX_DYNAMIC_SHARED_SIZE_BYTES"]


@dataclass
class Launched:
    """A launch as the driver received it."""

    symbol: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_mem: int
    attributes: dict[str, Any]


@dataclass
class FakeDriver:
    """The driver's state; its methods named as the driver's functions take their place."""

    status: Any = OK
    launched: list[Launched] = field(default_factory=list)
    memory: dict[int, tuple[Any, int]] = field(default_factory=dict)
    streams: dict[int, deque[Work]] = field(default_factory=dict)
    captures: dict[int, list[Work]] = field(default_factory=dict)
    graphs: dict[int, list[Work]] = field(default_factory=dict)
    events: dict[int, tuple[int, float | None]] = field(default_factory=dict)
    modules: dict[int, tuple[Any, bytes]] = field(default_factory=dict)
    functions: dict[int, Function] = field(default_factory=dict)
    pinned: dict[int, Any] = field(default_factory=dict)
    retained: int = 0
    _numbers: Any = field(default_factory=lambda: itertools.count(4096))
    _lock: Any = field(default_factory=threading.RLock)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Take the place of the driver in this process."""
        for name in dir(self):
            if name.startswith("cu"):
                patch.setattr(driver, name, getattr(self, name))
        patch.setattr(launch, "_cu_launch_kernel_ex", lambda: self.launch_kernel_ex)

    def held(self) -> int:
        """How many things are out: memory, streams, graphs, events, modules, pinned buffers, contexts."""
        kinds = (self.memory, self.streams, self.graphs, self.events, self.modules, self.pinned)
        return sum(map(len, kinds)) + self.retained

    def run(self, stream: int, until: Callable[[], bool] = lambda: False) -> None:
        """Run what waits in a stream, up to the point where `until` holds."""
        with self._lock:
            while self.streams[stream] and self.status == OK and not until():
                self.streams[stream].popleft()()

    def submit(self, stream: int, work: Work) -> None:
        """Give work to a stream, or to the graph that it captures."""
        (self.captures[stream] if stream in self.captures else self.streams[stream]).append(work)

    def launch_kernel_ex(self, config: Any, function: Any, parameters: Any, extra: Any) -> int:
        """cuLaunchKernelEx as ctypes calls it."""
        if self.status != OK:
            return int(self.status)
        at, handle, table = (ctypes.cast(each, ctypes.c_void_p).value or 0 for each in (config, function, parameters))
        *sizes, shared_mem = (ctypes.c_uint * 7).from_address(at)
        stream, attributes, count = struct.unpack("=QQI", ctypes.string_at(at + 32, 20))
        kernel = self.functions[handle]
        if not all(sizes) or sizes[1] > 65535 or shared_mem > kernel.dynamic:
            return int(STATUS.CUDA_ERROR_INVALID_VALUE)
        self.launched.append(
            Launched(kernel.symbol, tuple(sizes[:3]), tuple(sizes[3:]), shared_mem, _attributes(attributes, count))
        )
        pointers = (ctypes.c_void_p * len(kernel.layout.sizes)).from_address(table)
        values = [ctypes.string_at(each, size) for each, size in zip(pointers, kernel.layout.sizes, strict=True)]
        geometry = _LAUNCH.pack(*sizes, shared_mem, 1)
        self.submit(stream, lambda: self._execute(kernel, geometry, values))
        return 0

    def _execute(self, kernel: Function, geometry: bytes, values: Sequence[bytes]) -> None:
        if kernel.symbol.startswith("wild"):
            self.status = STATUS.CUDA_ERROR_ILLEGAL_ADDRESS
            return
        buffers = [ctypes.create_string_buffer(value, len(value)) for value in values]
        kernel.entry(geometry, (ctypes.c_void_p * len(buffers))(*map(ctypes.addressof, buffers)))

    def _allocate(self, size: int, table: dict[int, Any]) -> int:
        buffer = ctypes.create_string_buffer(b"\xa5" * (size + 256), size + 256)
        address = -(-ctypes.addressof(buffer) // 256) * 256
        table[address] = buffer
        return address

    def cuInit(self, flags: int) -> Any:
        return (OK,)

    def cuDriverGetVersion(self) -> Any:
        return OK, 13000

    def cuDeviceGetCount(self) -> Any:
        return OK, 1

    def cuDeviceGet(self, ordinal: int) -> Any:
        return OK, ordinal

    def cuDeviceGetName(self, length: int, device: int) -> Any:
        return OK, b"a fake GPU\0"

    def cuDeviceTotalMem(self, device: int) -> Any:
        return OK, TOTAL_MEMORY

    def cuDeviceGetAttribute(self, which: Any, device: int) -> Any:
        return OK, ATTRIBUTES[which.name.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        self.retained += 1
        return OK, 1

    def cuDevicePrimaryCtxRelease(self, device: int) -> Any:
        self.retained -= 1
        return (OK,)

    def cuCtxPushCurrent(self, context: int) -> Any:
        return (OK,)

    def cuCtxPopCurrent(self) -> Any:
        return OK, 1

    def cuCtxSynchronize(self) -> Any:
        for stream in self.streams:
            self.run(stream)
        return (self.status,)

    def cuGetErrorName(self, status: Any) -> Any:
        return OK, STATUS(int(status)).name.encode()

    def cuGetErrorString(self, status: Any) -> Any:
        return OK, b"as the fake driver says"

    def cuStreamCreate(self, flags: Any) -> Any:
        number = next(self._numbers)
        self.streams[number] = deque()
        return self.status, driver.CUstream(number)

    def cuStreamDestroy(self, stream: Any) -> Any:
        self.run(int(stream))
        del self.streams[int(stream)]
        return (self.status,)

    def cuStreamSynchronize(self, stream: Any) -> Any:
        self.run(int(stream))
        return (self.status,)

    def cuStreamBeginCapture(self, stream: Any, mode: Any) -> Any:
        self.captures[int(stream)] = []
        return (self.status,)

    def cuStreamEndCapture(self, stream: Any) -> Any:
        number = next(self._numbers)
        self.graphs[number] = self.captures.pop(int(stream))
        return self.status, number

    def cuGraphInstantiate(self, graph: int, flags: int) -> Any:
        number = next(self._numbers)
        self.graphs[number] = list(self.graphs[graph])
        return self.status, number

    def cuGraphDestroy(self, graph: int) -> Any:
        del self.graphs[graph]
        return (self.status,)

    cuGraphExecDestroy = cuGraphDestroy

    def cuGraphLaunch(self, graph: int, stream: Any) -> Any:
        if self.status == OK:
            for work in self.graphs[graph]:
                self.submit(int(stream), work)
        return (self.status,)

    def cuEventCreate(self, flag: Any) -> Any:
        number = next(self._numbers)
        self.events[number] = (0, 0.0)
        return self.status, number

    def cuEventDestroy(self, event: int) -> Any:
        del self.events[event]
        return (self.status,)

    def cuEventRecord(self, event: int, stream: Any) -> Any:
        def passed() -> None:
            if event in self.events:
                self.events[event] = (int(stream), time.perf_counter())

        self.events[event] = (int(stream), None)
        self.submit(int(stream), passed)
        return (self.status,)

    def cuEventQuery(self, event: int) -> Any:
        if self.status == OK and self.events[event][1] is None:
            self.cuEventSynchronize(event)  # the next query finds it passed
            return (STATUS.CUDA_ERROR_NOT_READY,)
        return (self.status,)

    def cuEventSynchronize(self, event: int) -> Any:
        stream, at = self.events[event]
        if at is None:
            self.run(stream, lambda: self.events[event][1] is not None)
        return (self.status,)

    def cuEventElapsedTime(self, earlier: int, later: int) -> Any:
        start, end = self.events[earlier][1], self.events[later][1]
        assert start is not None
        assert end is not None
        return self.status, (end - start) * 1e3

    def cuMemGetInfo(self) -> Any:
        return self.status, TOTAL_MEMORY - sum(size for _, size in self.memory.values()), TOTAL_MEMORY

    def cuMemAlloc(self, size: int) -> Any:
        buffers: dict[int, Any] = {}
        address = self._allocate(size, buffers)
        self.memory[address] = (buffers[address], size)
        return self.status, address

    def cuMemFree(self, address: int) -> Any:
        self.cuCtxSynchronize()
        del self.memory[address]
        return (self.status,)

    def cuMemHostAlloc(self, size: int, flags: int) -> Any:
        return self.status, self._allocate(size, self.pinned)

    def cuMemFreeHost(self, address: int) -> Any:
        del self.pinned[address]
        return (self.status,)

    def cuMemcpyHtoDAsync(self, target: int, source: int, size: int, stream: Any) -> Any:
        self.submit(int(stream), lambda: ctypes.memmove(target, source, size) and None)
        return (self.status,)

    def cuMemcpyDtoHAsync(self, target: int, source: int, size: int, stream: Any) -> Any:
        return self.cuMemcpyHtoDAsync(target, source, size, stream)

    def cuMemsetD8Async(self, address: int, value: int, size: int, stream: Any) -> Any:
        self.submit(int(stream), lambda: ctypes.memset(address, value, size) and None)
        return (self.status,)

    def cuModuleLoadDataEx(self, image: bytes, count: int, keys: Any, values: Any) -> Any:
        number = next(self._numbers)
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(image[len(_HEADER) :])
            file.flush()
            try:
                self.modules[number] = (ctypes.CDLL(file.name), image)
            except OSError:
                return STATUS.CUDA_ERROR_INVALID_IMAGE, 0
        return self.status, number

    def cuModuleUnload(self, module: int) -> Any:
        del self.modules[module]
        return (self.status,)

    def cuModuleGetFunction(self, module: int, name: bytes) -> Any:
        library, image = self.modules[module]
        types = re.search(rb"\0?%s\(([a-z0-9,]*)\)" % re.escape(name), image)
        if types is None:
            return STATUS.CUDA_ERROR_NOT_FOUND, 0
        names = types[1].decode().split(",") if types[1] else []
        params = [Param.parse("inout ptr" if each == "ptr" else each) for each in names]
        number = next(self._numbers)
        self.functions[number] = Function(name.decode(), library[name.decode()], layout(params))
        return self.status, number

    def cuFuncLoad(self, function: int) -> Any:
        return (self.status,)

    def cuFuncGetParamInfo(self, function: int, index: int) -> Any:
        where = self.functions[function].layout
        if index >= len(where.sizes):
            return STATUS.CUDA_ERROR_INVALID_VALUE, 0, 0
        return self.status, where.offsets[index], where.sizes[index]

    def cuFuncGetAttribute(self, which: Any, function: int) -> Any:
        return self.status, FUNCTION_ATTRIBUTES[which.name.removeprefix("CU_FUNC_ATTRIBUTE_")]

    def cuFuncSetAttribute(self, function: int, which: Any, value: int) -> Any:
        self.functions[function].dynamic = value
        return (self.status,)

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: int, threads: int, shared_mem: int) -> Any:
        return self.status, min(2048 // threads, 232448 // max(shared_mem, 1))


class HostCodeDevice(CudaDevice):
    """The GPU of this driver, taking host modules as they are: a folder that is built for the host runs on it."""

    def __init__(self) -> None:
        super().__init__()
        self.target = host_target()

    def load_module(self, image: bytes) -> CudaModule:
        """Load a host module."""
        return super().load_module(cubin(image))


def _attributes(address: int, count: int) -> dict[str, Any]:
    """Launch attributes by name: a struct of 72 bytes each, of which the value begins at byte 8."""
    found = {}
    for index in range(count):
        at = address + 72 * index
        name = driver.CUlaunchAttributeID(ctypes.c_int.from_address(at).value).name
        x, y, z = (ctypes.c_uint * 3).from_address(at + 8)
        short = name.removeprefix("CU_LAUNCH_ATTRIBUTE_").lower()
        found[short] = (x, y, z) if short == "cluster_dimension" else x
    return found
