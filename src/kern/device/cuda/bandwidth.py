"""How fast a GPU reads its memory, a bound for kernels that stream their weights."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Final

from cuda.bindings import driver

from kern.device.cuda.context import Context
from kern.device.cuda.launch import CudaPrepared, profile
from kern.device.cuda.memory import CudaMemory, free_memory
from kern.device.cuda.module import CudaFunction, CudaModule
from kern.device.cuda.stream import CudaStream
from kern.manifest.launches import KernelLaunch, Launch
from kern.manifest.params import Layout
from kern.toolchain.nvrtc import compile_cubin

_BYTES: Final = 8 << 30
"""Bytes read per pass where that much is free."""

_LEFT_FREE: Final = 256 << 20
_PASSES: Final = 8
_THREADS: Final = 512
_BLOCKS_PER_MULTIPROCESSOR: Final = 4


def read_bandwidth(context: Context, target: str, prepare: Callable[[Sequence[Launch]], CudaPrepared]) -> float:
    """Bytes per second of a read-only stream: the best of 8 passes over 8 GiB, or over what is free if less.

    The kernel is compiled by this call. Raises CudaCompilerMissing without NVRTC, OutOfMemory.
    """
    source = files("kern.device.cuda").joinpath("read.cu").read_text()
    module = CudaModule(context, compile_cubin(source, "read.cu", target))
    stream = CudaStream(context)
    try:
        with context:
            size = max(min(_BYTES, free_memory(context) - _LEFT_FREE), 1 << 20)
        memory = CudaMemory(context, size)
        try:
            with context:
                filled = driver.cuMemsetD8Async(memory.address, 0x5A, size, stream.handle)
                context.checked(filled, "cuMemsetD8Async", f"{size} bytes")
            launch = _launch(context, module.function("read"), memory)
            passes = profile(context, prepare([launch] * _PASSES), stream)
            return size // 16 * 16 / min(passes)
        finally:
            memory.free()
    finally:
        stream.close()
        module.unload()


def _launch(context: Context, function: CudaFunction, memory: CudaMemory) -> KernelLaunch:
    blocks = context.attribute("MULTIPROCESSOR_COUNT") * _BLOCKS_PER_MULTIPROCESSOR
    return KernelLaunch(
        label="reading",
        function=function,
        grid=(blocks, 1, 1),
        block=(_THREADS, 1, 1),
        shared_mem=0,
        params=struct.pack("=QQQ", memory.address, memory.size // 16, memory.address),
        layout=Layout((0, 8, 16), (8, 8, 8)),
    )
