"""Running single kernels of the CUDA library on a GPU, with numpy arrays as their buffers."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

import numpy as np

from kern.device.base import Device, Memory, Module
from kern.kernels.compile_cuda import compile_cuda_modules
from kern.kernels.cuda_library import cuda_kernels
from kern.kernels.cuda_plan import CudaPlan
from kern.manifest.expressions import evaluate
from kern.manifest.launches import KernelLaunch
from kern.manifest.params import DTYPE_BYTES, layout
from kern.manifest.types import Arg, Kernel, ScratchArg, Step
from kernels.harness import PACK, in_order

Name = TypeVar("Name")


class CudaLibrary:
    """The kernels of a plan, loaded on a device."""

    def __init__(self, device: Device, plan: CudaPlan, images: Mapping[str, bytes]) -> None:
        self.device, self.stream = device, device.stream()
        self.sizes, self.round, self.squares = plan.sizes, plan.round, plan.matvec_blocks
        hashes = {name: hashlib.sha256(image).hexdigest() for name, image in images.items()}
        self.modules: Mapping[str, Module] = {name: device.load_module(image) for name, image in images.items()}
        self.kernels: Mapping[str, Kernel] = cuda_kernels(plan, hashes)

    def run(self, entry: str, **arguments: Any) -> None:
        """Launch every step of `entry` for its parameters and the symbols.

        Arrays are copied to the device and back, numbers passed by value.

        Scratch starts as NaNs. A view of an array is passed with the array that it is a view of.
        """
        kernel, (args, symbols) = self.kernels[entry], in_order(entry, arguments)
        scratch = {
            name: np.full(int(np.prod([evaluate(e, symbols) for e in s.shape])) * DTYPE_BYTES[s.dtype], 0xFF, np.uint8)
            for name, s in kernel.impl.scratch.items()
        }
        arrays = [array for array in (*args, *scratch.values()) if isinstance(array, np.ndarray)]
        owners = {id(owner(array)): owner(array) for array in arrays}
        memories = {key: self.device.alloc(array.nbytes) for key, array in owners.items()}
        for key, array in owners.items():
            self.device.write(memories[key].address, memoryview(octets(array)), self.stream)
        launches = [self._launch(step, args, scratch, memories, symbols) for step in kernel.impl.steps]
        self.device.launch(self.device.prepare(launches), self.stream)
        pending = {k: self.device.read(memories[k].address, array.nbytes, self.stream) for k, array in owners.items()}
        for key, array in owners.items():
            octets(array)[:] = np.frombuffer(pending[key].wait(), np.uint8)
            memories[key].free()

    def _launch(
        self,
        step: Step,
        args: Sequence[Any],
        scratch: Mapping[str, np.ndarray],
        memories: Mapping[int, Memory],
        symbols: Mapping[str, int],
    ) -> KernelLaunch:
        where, buffer = layout(step.params), b""
        for param, arg, offset in zip(step.params, step.args, where.offsets, strict=True):
            if isinstance(arg, Arg):
                value = args[arg.arg]
            else:
                value = scratch[arg.scratch] if isinstance(arg, ScratchArg) else arg.value
            if isinstance(value, np.ndarray):
                whole = owner(value)
                value = memories[id(whole)].address + value.ctypes.data - whole.ctypes.data
            code = PACK[param.scalar] if param.scalar else "Q"
            buffer = buffer.ljust(offset, b"\0") + struct.pack(f"={code}", value)
        assert step.cubin is not None
        function = self.modules[step.cubin].function(step.symbol)
        x, y, z = (evaluate(e, symbols) for e in step.grid)
        shared_mem = evaluate(step.shared_mem, symbols)
        return KernelLaunch(step.symbol, function, (x, y, z), step.block, shared_mem, buffer, where, pdl=step.pdl)


def libraries_of(device: Device, plans: Mapping[Name, CudaPlan]) -> dict[Name, CudaLibrary]:
    """A library for each plan, compiled side by side."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        images = list(pool.map(compile_cuda_modules, plans.values()))
    return {name: CudaLibrary(device, plan, of) for (name, plan), of in zip(plans.items(), images, strict=True)}


def owner(array: np.ndarray) -> np.ndarray:
    """The array that a view looks into."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def octets(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)
