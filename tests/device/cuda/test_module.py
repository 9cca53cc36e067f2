"""Cubins loaded on a GPU, and what is refused: junk, cut files, other architectures, absent symbols."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kern.device.base import Device, ModuleError

pytestmark = pytest.mark.gpu

SOURCE = """
extern "C" __global__ void one(int *x) { *x = 1; }
template <int N> __global__ void many(int *x) { *x = N; }
template __global__ void many<3>(int *);
"""

Compile = Callable[[str], bytes]


def test_loading_the_same_bytes_twice_gives_two_modules(device: Device, compile_cuda: Compile) -> None:
    first, second = (device.load_module(compile_cuda(SOURCE)) for _ in range(2))
    first.unload()
    assert second.function("one").symbol == "one"


def test_mangled_names_are_found(device: Device, compile_cuda: Compile) -> None:
    function = device.load_module(compile_cuda(SOURCE)).function("_Z4manyILi3EEvPi")
    assert function.layout is not None
    assert function.layout.sizes == (8,)


@pytest.mark.parametrize("symbol", ["two", "", "one\0", "On\u00e9"])
def test_an_absent_symbol_is_named(device: Device, compile_cuda: Compile, symbol: str) -> None:
    with pytest.raises(ModuleError, match="has no kernel"):
        device.load_module(compile_cuda(SOURCE)).function(symbol)


@pytest.mark.parametrize("cut", [0, 3, 63, 64, 0.5, -1])
def test_a_truncated_file_is_refused(device: Device, compile_cuda: Compile, cut: float) -> None:
    image = compile_cuda(SOURCE)
    length = int(len(image) * cut) if isinstance(cut, float) else cut
    with pytest.raises(ModuleError):
        device.load_module(image[:length])


@pytest.mark.parametrize("image", [b"", b"junk" * 100, b"\x7fELF" + bytes(60), b"//PTX\n.version 8.0\n"])
def test_bytes_that_are_not_a_cubin_are_refused(device: Device, image: bytes) -> None:
    with pytest.raises(ModuleError):
        device.load_module(image)


def test_a_cubin_for_another_architecture_is_refused(device: Device) -> None:
    from kern.toolchain.nvrtc import compile_cubin

    other = "sm_80" if device.target != "sm_80" else "sm_90"
    with pytest.raises(ModuleError, match="CUDA_ERROR_NO_BINARY_FOR_GPU") as caught:
        device.load_module(compile_cubin(SOURCE, "other.cu", other))
    assert "architecture" in caught.value.help
