"""Host modules: loaded from memory, independent of each other, refused with a reason."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

import pytest

from kern.device.base import ModuleError
from kern.device.host.device import HostDevice
from kern.device.host.module import HostModule
from kern.manifest.launches import KernelLaunch

COUNTER = 'static int64_t calls;\nKERN_KERNEL(count, "ptr") { *KERN_ARG(int64_t *, 0) = ++calls; }'
ANSWER = 'KERN_KERNEL(answer, "ptr") {{ *KERN_ARG(int64_t *, 0) = {number}; }}'
PARALLEL = """
#include <omp.h>
int hidden;
KERN_KERNEL(parallel, "ptr") {
    int64_t *out = KERN_ARG(int64_t *, 0);
    _Pragma("omp parallel num_threads(launch->threads)")
    { _Pragma("omp atomic") *out += 1; }
}
"""
MISSING = 'void nowhere(void);\nKERN_KERNEL(calls_nowhere, "") { (void)launch, (void)params; nowhere(); }'

Compile = Callable[..., bytes]
MakeLaunch = Callable[..., KernelLaunch]


@pytest.fixture
def ask(device: HostDevice, make_launch: MakeLaunch) -> Callable[[HostModule, str], int]:
    """Launches a kernel that writes one number, and reads it."""

    def call(module: HostModule, symbol: str) -> int:
        out, stream = device.alloc(8), device.stream()
        device.launch(device.prepare([make_launch(module.function(symbol), "ptr", out.address)]), stream)
        (number,) = struct.unpack("=q", device.read(out.address, 8, stream).wait())
        out.free()
        return int(number)

    return call


Ask = Callable[[HostModule, str], int]


def test_the_same_bytes_loaded_twice_are_two_modules(device: HostDevice, compile_c: Compile, ask: Ask) -> None:
    image = compile_c(COUNTER)
    first, second = device.load_module(image), HostDevice(threads=1).load_module(image)
    assert [ask(module, "count") for module in (first, first, second, first, second)] == [1, 2, 1, 3, 2]


def test_equal_symbols_of_two_modules_are_independent(device: HostDevice, compile_c: Compile, ask: Ask) -> None:
    modules = [device.load_module(compile_c(ANSWER.format(number=number))) for number in (41, 42)]
    assert [ask(module, "answer") for module in modules] == [41, 42]
    modules[0].unload()
    assert ask(modules[1], "answer") == 42


@pytest.mark.parametrize("flags", [(), ("-Wl,-z,nodelete",)], ids=["unloaded", "kept by the loader"])
def test_a_module_loaded_after_an_unload_is_the_new_one(
    device: HostDevice, compile_c: Compile, ask: Ask, flags: tuple[str, ...]
) -> None:
    for number in (1, 2, 3):
        module = device.load_module(compile_c(ANSWER.format(number=number), *flags))
        assert ask(module, "answer") == number
        module.unload()


def test_unloading_closes_the_file_and_can_be_repeated(device: HostDevice, compile_c: Compile) -> None:
    before = os.listdir("/proc/self/fd")
    module = device.load_module(compile_c(COUNTER))
    module.unload()
    module.unload()
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(ModuleError, match="no function 'count'"):
        module.function("count")


def test_openmp_survives_the_module_that_started_it(device: HostDevice, compile_c: Compile, ask: Ask) -> None:
    for _ in range(3):
        module = device.load_module(compile_c(PARALLEL, "-fopenmp"))
        assert ask(module, "parallel") == device.threads
        module.unload()


@pytest.mark.parametrize("symbol", ["absent", "", "malloc", "GOMP_parallel", "parallel\0", "hidden"])
def test_only_exports_of_the_module_itself_are_functions(device: HostDevice, compile_c: Compile, symbol: str) -> None:
    module = device.load_module(compile_c(PARALLEL, "-fopenmp"))
    with pytest.raises(ModuleError, match="the host module has no function"):
        module.function(symbol)


@pytest.mark.parametrize(
    "image", [b"", b"not code", b"\x7fELF", b"\x7fELF" + bytes(200)], ids=["empty", "text", "magic", "zeros"]
)
def test_bytes_that_are_not_a_shared_object_are_refused(device: HostDevice, image: bytes) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(ModuleError, match="a host module cannot be loaded: the module: "):
        device.load_module(image)
    assert os.listdir("/proc/self/fd") == before


def test_a_module_with_an_undefined_symbol_is_refused(device: HostDevice, compile_c: Compile) -> None:
    with pytest.raises(ModuleError, match="undefined symbol: nowhere"):
        device.load_module(compile_c(MISSING))


def test_the_host_reports_no_layout_and_no_limits(device: HostDevice, compile_c: Compile) -> None:
    function = device.load_module(compile_c(COUNTER)).function("count")
    assert (function.symbol, function.layout, function.limits.max_threads) == ("count", None, None)
