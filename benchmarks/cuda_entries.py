"""Entries of the CUDA library launched on addresses, and graphs of them timed; shared by the benchmarks of kernels."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Mapping, Sequence
from statistics import median
from time import perf_counter

from kern.device.base import Device, Module
from kern.kernels.cuda_library import cuda_kernels
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.interfaces import INTERFACES
from kern.manifest.expressions import evaluate
from kern.manifest.launches import KernelLaunch
from kern.manifest.params import DTYPE_BYTES, layout
from kern.manifest.types import Arg, Kernel, ScratchArg, Step

REPLAYS, REPEATS = 10, 15
SCRATCH_BYTES = 1 << 27
PACK = {"i32": "i", "i64": "q", "f32": "f"}


class Gpu:
    """Buffers on a device, and times of launches on it."""

    def __init__(self, device: Device) -> None:
        self.device, self.stream = device, device.stream()

    def zeros(self, size: int) -> int:
        """The address of so many bytes."""
        address = self.device.alloc(size).address
        self.device.zero(address, size, self.stream)
        return address

    def held(self, octets: bytes) -> int:
        """The address of these bytes on the device."""
        address = self.device.alloc(len(octets)).address
        self.device.write(address, memoryview(octets), self.stream)
        self.stream.synchronize()
        return address

    def time(self, launches: Sequence[KernelLaunch]) -> float:
        """Microseconds of a graph of the launches: the median of several times of some replays."""
        graph, times = self.device.capture([self.device.prepare(launches)]), []
        for _ in range(REPEATS + 1):
            self.stream.synchronize()
            begin = perf_counter()
            for _ in range(REPLAYS):
                graph.launch(self.stream)
            self.stream.synchronize()
            times.append((perf_counter() - begin) * 1e6 / REPLAYS)
        graph.free()
        return median(times[1:])

    def apart(self, launches: Sequence[KernelLaunch]) -> list[float]:
        """Microseconds of each launch with an event before and after, the median of several runs."""
        prepared = self.device.prepare(launches)
        runs = [self.device.profile(prepared, self.stream) for _ in range(REPEATS + 1)]
        return [median(each) * 1e6 for each in zip(*runs[1:], strict=True)]


class Entries:
    """The entries of a plan, loaded, with one scratch for all of them."""

    def __init__(self, gpu: Gpu, plan: CudaPlan, images: Mapping[str, bytes]) -> None:
        hashes = {name: hashlib.sha256(image).hexdigest() for name, image in images.items()}
        self.kernels: Mapping[str, Kernel] = cuda_kernels(plan, hashes)
        self.modules: Mapping[str, Module] = {name: gpu.device.load_module(image) for name, image in images.items()}
        self.scratch = gpu.zeros(SCRATCH_BYTES)

    def launches(self, entry: str, arguments: Mapping[str, int | float], **symbols: int) -> list[KernelLaunch]:
        """All launches of an entry, given addresses and numbers for its parameters."""
        kernel, interface = self.kernels[entry], INTERFACES[entry]
        if arguments.keys() != interface.keys():
            raise TypeError(f"{entry} takes {', '.join(interface)}, not {', '.join(arguments)}")
        args = [arguments[name] for name in interface]
        scratch = self._placed(kernel, symbols)
        return [self._launch(step, args, scratch, symbols) for step in kernel.impl.steps]

    def _placed(self, kernel: Kernel, symbols: Mapping[str, int]) -> Mapping[str, int]:
        placed, at = {}, self.scratch
        for name, array in kernel.impl.scratch.items():
            size = math.prod(evaluate(extent, symbols) for extent in array.shape) * DTYPE_BYTES[array.dtype]
            placed[name], at = at, at + -(-size // 256) * 256
        assert at <= self.scratch + SCRATCH_BYTES
        return placed

    def _launch(
        self, step: Step, args: Sequence[int | float], scratch: Mapping[str, int], symbols: Mapping[str, int]
    ) -> KernelLaunch:
        where, buffer = layout(step.params), b""
        for param, arg, offset in zip(step.params, step.args, where.offsets, strict=True):
            if isinstance(arg, Arg):
                value = args[arg.arg]
            else:
                value = scratch[arg.scratch] if isinstance(arg, ScratchArg) else arg.value
            code = PACK[param.scalar] if param.scalar else "Q"
            buffer = buffer.ljust(offset, b"\0") + struct.pack(f"={code}", value)
        assert step.cubin is not None
        x, y, z = (evaluate(each, symbols) for each in step.grid)
        function, memory = self.modules[step.cubin].function(step.symbol), evaluate(step.shared_mem, symbols)
        return KernelLaunch(step.symbol, function, (x, y, z), step.block, memory, buffer, where, pdl=step.pdl)
