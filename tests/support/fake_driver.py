"""What a recorded test program does: calls of the fake libcuda, by ctypes, in its own process."""

from __future__ import annotations

import ctypes as c
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

DEVICE_MEMORY, HOST_MEMORY = 2, 1
DEVICE = 0x7100_0000_0000
"""Where the fake device memory begins: 1 MiB; the numbers point nowhere."""
STREAM = 0x20
"""A stream's handle; CUPTI's id for it is this + 100."""

Handle = c.c_void_p


class LaunchAttribute(c.Structure):
    _fields_ = [("id", c.c_uint), ("pad", c.c_uint), ("value", c.c_uint * 16)]


class LaunchConfig(c.Structure):
    _fields_ = [
        *((name, c.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        ("stream", c.c_void_p),
        ("attributes", c.c_void_p),
        ("attribute_count", c.c_uint),
    ]


class KernelNode(c.Structure):
    _fields_ = [
        ("function", c.c_void_p),
        *((name, c.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        *((name, c.c_void_p) for name in ("params", "extra", "kernel", "context")),
    ]


class Copy2d(c.Structure):
    _fields_ = [
        *((name, c.c_size_t) for name in ("from_x", "from_y")),
        ("from_type", c.c_uint),
        *((name, c.c_void_p) for name in ("from_host", "from_device", "from_array")),
        *((name, c.c_size_t) for name in ("from_pitch", "to_x", "to_y")),
        ("to_type", c.c_uint),
        *((name, c.c_void_p) for name in ("to_host", "to_device", "to_array")),
        *((name, c.c_size_t) for name in ("to_pitch", "width", "height")),
    ]


class Program:
    """A process that uses CUDA. libcupti is in it before, as torch's is, unless the test says otherwise."""

    def __init__(self) -> None:
        if "FAKE_WITHOUT_CUPTI" not in os.environ:
            c.CDLL("libcupti.so.13")
        self.cuda = c.CDLL("libcuda.so.1", use_errno=True)
        self.kept: list[Any] = []
        assert self.cuda.cuInit(0) == 0
        self.allocation(DEVICE, 1 << 20, DEVICE_MEMORY)

    def call(self, name: str, *arguments: Any) -> int:
        """A function of the library; integers are passed as 64 bits."""
        wide = [c.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        return int(getattr(self.cuda, name)(*wide))

    def allocation(self, base: int, size: int, kind: int, managed: int = 0) -> None:
        self.call("fake_allocation", base, size, kind, managed)

    def host_buffer(self, data: bytes) -> int:
        """The address of memory of this process that begins with `data`."""
        self.kept.append(c.create_string_buffer(data, len(data)))
        return c.addressof(self.kept[-1])

    def module(self, image: bytes) -> Handle:
        module = Handle()
        self.call("fake_image", len(image))
        self.call("cuModuleLoadData", c.byref(module), c.c_void_p(self.host_buffer(image)))
        return module

    def library(self, image: bytes) -> Handle:
        """A library, which is loaded when a kernel of it is launched."""
        library = Handle()
        self.call("fake_image", len(image))
        self.call("cuLibraryLoadData", c.byref(library), c.c_void_p(self.host_buffer(image)), *[c.c_void_p()] * 6)
        return library

    def function(self, module: Handle, name: bytes, sizes: Sequence[int] = (), registers: int = 32) -> Handle:
        function = Handle()
        self.call("cuModuleGetFunction", c.byref(function), module, name)
        return self._laid_out(function, sizes, registers)

    def kernel(self, library: Handle, name: bytes, sizes: Sequence[int] = (), registers: int = 32) -> Handle:
        """A CUkernel, which launches take for a CUfunction, as those of `<<<>>>` are."""
        kernel = Handle()
        self.call("cuLibraryGetKernel", c.byref(kernel), library, name)
        return self._laid_out(kernel, sizes, registers)

    def _laid_out(self, handle: Handle, sizes: Sequence[int], registers: int) -> Handle:
        """Parameters of these sizes, each at the next multiple of its size, or of 8."""
        offsets: list[int] = []
        end = 0
        for size in sizes:
            offsets.append(-(-end // min(size, 8)) * min(size, 8))
            end = offsets[-1] + size
        array = c.c_size_t * len(sizes)
        self.call("fake_layout", handle, len(sizes), array(*offsets), array(*sizes), registers)
        return handle

    def module_of(self, kernel: Handle) -> Handle:
        """The module of a kernel's library, loaded or not."""
        module = Handle()
        self.call("fake_module_of", kernel, c.byref(module))
        return module

    def pack(self, values: Sequence[bytes]) -> Any:
        """A `kernelParams` array of these parameters' bytes."""
        addresses = [self.host_buffer(value) for value in values]
        self.kept.append((c.c_void_p * (len(values) + 1))(*addresses))
        return self.kept[-1]

    def extra(self, buffer: int, size: int) -> Any:
        """An `extra` array of a packed buffer."""
        length = c.c_size_t(size)
        self.kept += [length, (c.c_void_p * 5)(1, buffer, 2, c.addressof(length), None)]
        return self.kept[-1]

    def launch(self, function: Handle, values: Sequence[bytes] = (), stream: int = 0, grid: int = 1) -> int:
        return self.launch_raw(function, self.pack(values), None, stream, grid)

    def launch_raw(
        self, function: Handle, params: Any, extra: Any, stream: int = 0, grid: int = 1, name: str = "cuLaunchKernel"
    ) -> int:
        arguments = (function, grid, 2, 3, 128, 4, 1, 512, c.c_void_p(stream), params, extra)
        return self.call(name, *arguments)

    def capturing(self, stream: int, on: bool) -> None:
        self.call("fake_capturing", c.c_void_p(stream), int(on))


def word(value: int, size: int = 8) -> bytes:
    return value.to_bytes(size, "little")


def images() -> tuple[bytes, bytes]:
    """The two cubins in the folder that is the program's first argument."""
    first, second = (Path(sys.argv[1], name).read_bytes() for name in ("first.cubin", "second.cubin"))
    return first, second
