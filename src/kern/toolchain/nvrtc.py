"""CUDA C++ to cubins through NVRTC, which needs no GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from kern.manifest.errors import KernError, install_hint, variant

CudaCompilerMissing = variant(KernError, "cuda-compiler-missing", "NVRTC or CUDA's headers are missing.", exit_code=2)
CompileError = variant(KernError, "cuda-compilation-failed", "CUDA C++ does not compile.", help="correct the source")


def compile_cubin(source: str, name: str, target: str, options: Sequence[str] = ()) -> bytes:
    """The cubin of `source` for `target` (`sm_90`, `sm_90a`, …). `name` is used in the compiler's messages.

    Raises CompileError, CudaCompilerMissing where NVRTC is not installed.
    """
    nvrtc = _nvrtc()
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
    try:
        flags = [option.encode() for option in (f"--gpu-architecture={target}", *options)]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if status:
            raise CompileError(f"{name} does not compile for {target}:\n{_log(program)}")
        image = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
        _checked(nvrtc.nvrtcGetCUBIN(program, image))
        return bytes(image)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def architectures() -> tuple[int, ...]:
    """The architectures that NVRTC compiles for: 80 for sm_80. Raises CudaCompilerMissing where it is not installed."""
    nvrtc = _nvrtc()
    count = _checked(nvrtc.nvrtcGetNumSupportedArchs())
    return tuple(_checked(nvrtc.nvrtcGetSupportedArchs()))[:count]


@cache
def _nvrtc() -> Any:
    """The bindings of a library that loads. Raises CudaCompilerMissing."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except ImportError as error:
        raise CudaCompilerMissing(f"CUDA's compiler needs cuda-bindings: {error}", install_hint("cuda")) from error
    except RuntimeError as error:  # the bindings' own, where the library is not found
        raise CudaCompilerMissing("NVRTC is not installed", install_hint("cuda")) from error
    return nvrtc


def _log(program: Any) -> str:
    nvrtc = _nvrtc()
    log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(nvrtc.nvrtcGetProgramLog(program, log))
    return log.rstrip(b"\0\n").decode(errors="replace")


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status:
        _, text = _nvrtc().nvrtcGetErrorString(status)
        raise CompileError(f"NVRTC failed: {text.decode()}")
    return values[0] if values else None
