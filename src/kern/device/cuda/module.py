"""CUDA modules: cubins loaded from memory, and what the driver reports about their functions."""

from __future__ import annotations

import struct
from typing import Any, Final

from cuda.bindings import driver

from kern.device.base import FunctionLimits, LaunchError, ModuleError
from kern.device.cuda.context import Context, described
from kern.manifest.params import Layout

_LOG_BYTES: Final = 8192
_ELF_HEADER: Final = struct.Struct("<4s14xH12xQQ6xHHHH2x")
"""ELF-64: magic, machine, offsets of the program and the section table, size and number of the entries of each."""

_EM_CUDA: Final = 190


class CudaFunction:
    """A kernel of a loaded module."""

    def __init__(self, module: CudaModule, context: Context, symbol: str, handle: Any) -> None:
        """The context must be current. Raises CudaError."""
        self.module = module
        self.symbol = symbol
        self.handle = handle
        self._context = context
        # The driver does not report the parameters of a function before it is loaded, which may be late.
        context.checked(driver.cuFuncLoad(handle), "cuFuncLoad", repr(symbol))
        self.layout: Layout | None = self._layout()
        self.limits = FunctionLimits(
            max_threads=self._attribute("MAX_THREADS_PER_BLOCK"),
            registers=self._attribute("NUM_REGS"),
            static_shared_mem=self._attribute("SHARED_SIZE_BYTES"),
        )
        self._dynamic = self._attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES")

    def opt_in(self, shared_mem: int) -> None:
        """Allow launches with `shared_mem` bytes of dynamic shared memory. The context must be current."""
        if shared_mem > self._dynamic:
            which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            changed = driver.cuFuncSetAttribute(self.handle, which, shared_mem)
            self._context.checked(
                changed, "cuFuncSetAttribute", f"{self.symbol!r}, {shared_mem} bytes of shared memory"
            )
            self._dynamic = shared_mem

    def blocks_per_multiprocessor(self, threads: int, shared_mem: int) -> int:
        """Blocks that one multiprocessor holds at once. The context must be current."""
        found = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(self.handle, threads, shared_mem)
        call = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        return int(self._context.checked(found, call, repr(self.symbol)))

    def _attribute(self, name: str) -> int:
        which = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        found = driver.cuFuncGetAttribute(which, self.handle)
        return int(self._context.checked(found, "cuFuncGetAttribute", f"{self.symbol!r}, {name}"))

    def _layout(self) -> Layout:
        """The driver reports one parameter per call, and refuses the index after the last."""
        offsets: list[int] = []
        sizes: list[int] = []
        while True:
            status, offset, size = driver.cuFuncGetParamInfo(self.handle, len(offsets))
            if status == driver.CUresult.CUDA_ERROR_INVALID_VALUE:
                return Layout(tuple(offsets), tuple(sizes))
            self._context.checked((status,), "cuFuncGetParamInfo", f"{self.symbol!r}, parameter {len(offsets)}")
            offsets.append(int(offset))
            sizes.append(int(size))


class CudaModule:
    """A cubin on one GPU."""

    def __init__(self, context: Context, image: bytes) -> None:
        """Raises ModuleError where the driver refuses the bytes, or they are not a complete ELF file."""
        _check_whole(image)
        self.context = context
        self._functions: dict[str, CudaFunction] = {}
        log = bytearray(_LOG_BYTES)
        options = driver.CUjit_option
        keys = [options.CU_JIT_ERROR_LOG_BUFFER, options.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        with context:
            status, self._handle = driver.cuModuleLoadDataEx(image, len(keys), keys, [log, len(log)])
        if status:
            error = context.failure(status, "cuModuleLoadDataEx")
            if isinstance(error, LaunchError):
                raise error
            said = bytes(log).split(b"\0")[0].decode(errors="replace").strip()
            raise ModuleError(
                f"a module cannot be loaded on cuda:{context.ordinal}: cuModuleLoadDataEx: {described(status)}"
                + (f": {said}" if said else ""),
                "build the kernels for this GPU's architecture, with a CUDA version that its driver supports",
            )
        self.loaded = True

    def function(self, symbol: str) -> CudaFunction:
        """The kernel `symbol`. Raises ModuleError where there is none."""
        if symbol not in self._functions:
            self._functions[symbol] = self._find(symbol)
        return self._functions[symbol]

    def unload(self) -> None:
        """Unload the code. A second call does nothing."""
        if self.loaded:
            self.loaded = False
            self._functions.clear()
            if self.context.usable:
                with self.context:
                    self.context.checked(driver.cuModuleUnload(self._handle), "cuModuleUnload")

    def _find(self, symbol: str) -> CudaFunction:
        help = "build the kernels and the manifest together"
        if not self.loaded or not symbol or "\0" in symbol:  # the driver reports other errors for these names
            raise ModuleError(f"the module has no kernel {symbol!r}", help)
        with self.context:
            status, handle = driver.cuModuleGetFunction(self._handle, symbol.encode())
            if status == driver.CUresult.CUDA_ERROR_NOT_FOUND:
                raise ModuleError(f"the module has no kernel {symbol!r}", help)
            self.context.checked((status,), "cuModuleGetFunction", repr(symbol))
            return CudaFunction(self, self.context, symbol, handle)


def _check_whole(image: bytes) -> None:
    """The driver is given no length, and reads as far as the file's own tables say."""
    if len(image) >= _ELF_HEADER.size:
        magic, machine, programs, sections, *sizes = _ELF_HEADER.unpack_from(image)
        end = max(programs + sizes[0] * sizes[1], sections + sizes[2] * sizes[3])
        if magic == b"\x7fELF" and machine == _EM_CUDA and end <= len(image):
            return
    raise ModuleError("a CUDA module is not a complete cubin", "use the file as the compiler wrote it")
