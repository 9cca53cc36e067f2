"""CUDA C++ through NVRTC, on any machine."""

from __future__ import annotations

from importlib.resources import files

import pytest

from kern.toolchain import nvrtc as compiler
from kern.toolchain.nvrtc import CompileError, CudaCompilerMissing, compile_cubin

nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_90a", "sm_100"])
def test_the_devices_own_kernel_compiles(target: str) -> None:
    source = files("kern.device.cuda").joinpath("read.cu").read_text()
    assert compile_cubin(source, "read.cu", target).startswith(b"\x7fELF")


def test_options_reach_the_compiler() -> None:
    source = 'extern "C" __global__ void k(int *x) { *x = NUMBER; }'
    assert compile_cubin(source, "k.cu", "sm_90", ["-DNUMBER=3"])
    with pytest.raises(CompileError, match=r"k.cu does not compile for sm_90:\n(.|\n)*NUMBER"):
        compile_cubin(source, "k.cu", "sm_90")


def test_an_unknown_target_is_an_error() -> None:
    with pytest.raises(CompileError, match="gpu-architecture"):
        compile_cubin("", "k.cu", "sm_1")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise RuntimeError("libnvrtc.so.13 is not found")

    monkeypatch.setattr(nvrtc, "nvrtcVersion", missing)
    compiler._nvrtc.cache_clear()
    with pytest.raises(CudaCompilerMissing, match="NVRTC is not installed"):
        compile_cubin("", "k.cu", "sm_90")
