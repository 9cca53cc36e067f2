"""Kernels launched on PyTorch's device, and graphs of launches timed."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Launch:
    """One launch: `kind` for reports, arguments as ctypes values or tensors."""

    kind: str
    symbol: str
    grid: tuple[int, int, int]
    threads: int
    args: tuple[Any, ...]
    shared_mem: int = 0
    dependent: bool = True


def i32(value: int) -> ctypes.c_int32:
    return ctypes.c_int32(value)


def i64(value: int) -> ctypes.c_int64:
    return ctypes.c_int64(value)


def f32(value: float) -> ctypes.c_float:
    return ctypes.c_float(value)


class Gpu:
    """Modules, launches and graphs on PyTorch's device."""

    def __init__(self) -> None:
        import torch
        from cuda.bindings import driver

        self.torch, self.driver = torch, driver
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self.stream = torch.cuda.Stream()

    def checked(self, result: tuple[Any, ...]) -> Any:
        if int(result[0]):
            raise RuntimeError(str(result[0]))
        return result[1] if len(result) > 1 else None

    def functions(self, images: Mapping[str, bytes]) -> dict[str, Any]:
        """Every kernel of the modules by symbol."""
        found = {}
        for image in images.values():
            module = self.checked(self.driver.cuModuleLoadData(image))
            count = self.checked(self.driver.cuModuleGetFunctionCount(module))
            for function in self.checked(self.driver.cuModuleEnumerateFunctions(count, module)):
                found[self.checked(self.driver.cuFuncGetName(function)).decode()] = function
        return found

    def launch(self, functions: Mapping[str, Any], launch: Launch) -> None:
        driver, function = self.driver, functions[launch.symbol]
        if launch.shared_mem > 48 * 1024:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.checked(driver.cuFuncSetAttribute(function, attribute, launch.shared_mem))
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.threads, 1, 1
        config.sharedMemBytes, config.hStream = launch.shared_mem, self.stream.cuda_stream
        if launch.dependent:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [attribute], 1
        values = [arg.value if isinstance(arg, ctypes._SimpleCData) else arg.data_ptr() for arg in launch.args]
        types = [type(arg) if isinstance(arg, ctypes._SimpleCData) else ctypes.c_void_p for arg in launch.args]
        self.checked(driver.cuLaunchKernelEx(config, function, (tuple(values), tuple(types)), 0))

    def run(self, functions: Mapping[str, Any], launches: Sequence[Launch]) -> None:
        """One after another, and wait."""
        self.torch.cuda.synchronize()
        for launch in launches:
            self.launch(functions, launch)
        self.stream.synchronize()

    def time(
        self, functions: Mapping[str, Any], launches: Sequence[Launch], repeats: int = 7, replays: int = 10
    ) -> float:
        """Microseconds of the launches as a graph."""
        driver, stream = self.driver, self.stream
        self.torch.cuda.synchronize()
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self.checked(driver.cuStreamBeginCapture(stream.cuda_stream, mode))
        for launch in launches:
            self.launch(functions, launch)
        graph = self.checked(driver.cuStreamEndCapture(stream.cuda_stream))
        ready = self.checked(driver.cuGraphInstantiate(graph, 0))
        times = []
        for repeat in range(repeats + 1):
            begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            for _ in range(replays):
                self.checked(driver.cuGraphLaunch(ready, stream.cuda_stream))
            end.record(stream)
            stream.synchronize()
            if repeat:
                times.append(begin.elapsed_time(end) * 1e3 / replays)
        self.checked(driver.cuGraphExecDestroy(ready))
        self.checked(driver.cuGraphDestroy(graph))
        return statistics.median(times) if times else 0.0
