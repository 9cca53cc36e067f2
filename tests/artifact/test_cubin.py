"""Cubins describe themselves: architecture, kernels, layouts, limits, in both ELF flavours."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from kern.artifact.errors import BadModule
from kern.artifact.modules import describe
from kern.artifact.types import ModuleInfo
from kern.manifest.params import Layout, Param, layout
from support.elf import with_header
from support.nvrtc import cubin

SAMPLES = Path(__file__).parents[1] / "samples"

SOURCE = r"""
#include <cuda_bf16.h>
struct Big { char bytes[24]; double last; };

extern "C" __global__ void __launch_bounds__(256)
mixed(__nv_bfloat16 *out, const float *in, int n, float f, long long l, unsigned char b, unsigned u, Big big) {
    __shared__ float shared[100];
    shared[threadIdx.x % 100] = in[n];
    __syncthreads();
    out[0] = shared[f > 0] + l + b + u + big.last;
}
extern "C" __global__ void nothing() {}
template <class T> __global__ void fill(T *out, int n) { out[n] = 1; }
template __global__ void fill<float>(float *, int);
namespace deep { __global__ void within(int *out) { extern __shared__ int more[]; more[threadIdx.x] = out[0];
                                                    __syncthreads(); out[1] = more[3]; } }
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __block_size__((64, 2, 1)) shaped(int *out) { out[0] = 1; }
#endif
"""

MIXED = Layout((0, 8, 16, 20, 24, 32, 36, 40), (8, 8, 4, 4, 8, 1, 4, 32))


def read(image: bytes, name: str = "k.cubin") -> ModuleInfo:
    return describe(name, image, hashlib.sha256(image).hexdigest())


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_120"])
def test_target_kernels_and_layouts(architecture: str) -> None:
    module = read(cubin(SOURCE, architecture))
    assert (module.kind, module.target) == ("cubin", architecture)
    shaped = {"shaped"} if architecture != "sm_80" else set()
    assert module.kernels.keys() == {"mixed", "nothing", "_Z4fillIfEvPT_i", "_ZN4deep6withinEPi"} | shaped
    assert module.kernels["mixed"].layout == MIXED
    assert module.kernels["nothing"].layout == Layout((), ())
    assert module.kernels["_Z4fillIfEvPT_i"].layout == Layout((0, 8), (8, 4))


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a", "sm_100"])
def test_limits(architecture: str) -> None:
    kernels = read(cubin(SOURCE, architecture)).kernels
    assert kernels["mixed"].max_threads == 256
    assert kernels["mixed"].static_shared_mem == 400
    assert kernels["nothing"].max_threads is None
    assert kernels["nothing"].static_shared_mem == 0
    assert kernels["_ZN4deep6withinEPi"].static_shared_mem == 0
    assert all(0 < kernel.registers < 64 for kernel in kernels.values() if kernel.registers is not None)
    assert kernels["mixed"].registers is not None
    if "shaped" in kernels:
        assert kernels["shaped"].required_block == (64, 2, 1)
    assert kernels["mixed"].required_block is None


def test_registers_follow_the_compiler() -> None:
    source = r"""
    extern "C" __global__ void wide(const float *x, float *y, int n) {
        float r[200];
        #pragma unroll
        for (int i = 0; i < 200; i++) r[i] = x[i * n + threadIdx.x];
        __syncthreads();
        float s = 0;
        #pragma unroll
        for (int i = 0; i < 200; i++) s = s * r[199 - i] + r[i];
        y[threadIdx.x] = s;
    }"""
    for most in (72, 128):
        assert read(cubin(source, "sm_90a", f"--maxrregcount={most}")).kernels["wide"].registers == most


def test_params_that_a_manifest_can_declare_have_the_compilers_layout() -> None:
    source = (
        'extern "C" __global__ void k(unsigned char a, long long b, unsigned char c, int d, float *e) { *e = a+b+c+d; }'
    )
    declared = [Param.parse(text) for text in ("u8", "i64", "u8", "i32", "out buffer<f32>")]
    assert read(cubin(source, "sm_80")).kernels["k"].layout == layout(declared)


@pytest.mark.parametrize("size", [1720, 4000, 4096, 20000, 32000])
def test_structs_by_value(size: int) -> None:
    source = f"""
    struct Block {{ char bytes[{size}]; }};
    extern "C" __global__ void k(char *out, const __grid_constant__ Block block, int i) {{ *out = block.bytes[i]; }}"""
    assert read(cubin(source, "sm_90a")).kernels["k"].layout == Layout((0, 8, 8 + size), (8, size, 4))


def test_older_elf_flavour() -> None:
    module = read((SAMPLES / "abi7.cubin").read_bytes())
    assert (module.kind, module.target) == ("cubin", "sm_90a")
    mixed = module.kernels["mixed"]
    assert mixed.layout == Layout((0, 8, 16, 20, 24, 32), (8, 8, 4, 4, 8, 1))
    assert (mixed.max_threads, mixed.static_shared_mem) == (256, 400)
    assert mixed.registers is not None
    assert module.kernels.keys() == {"mixed", "nothing", "_Z4fillIfEvPT_i"}


def test_older_elf_flavour_without_the_flag_is_the_plain_architecture() -> None:
    image = (SAMPLES / "abi7.cubin").read_bytes()
    assert read(with_header(image, e_flags=0x5A055A)).target == "sm_90"


def test_relocatable_device_code_is_refused() -> None:
    with pytest.raises(BadModule, match="relocatable") as refusal:
        read(cubin(SOURCE, "sm_90a", "--relocatable-device-code=true"))
    assert "nvlink" in refusal.value.help


def test_unknown_elf_flavour_is_refused() -> None:
    with pytest.raises(BadModule, match="ABI version is 9"):
        read(with_header(cubin(SOURCE, "sm_90a"), e_ident_abiversion=9))


def test_the_image_is_what_was_given() -> None:
    image = cubin(SOURCE, "sm_80")
    module = read(image, "some.cubin")
    assert module.image is image
    assert (module.name, module.sha256) == ("some.cubin", hashlib.sha256(image).hexdigest())
