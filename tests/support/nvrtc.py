"""Cubins for tests: CUDA C++ compiled by NVRTC, which needs no GPU."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cuda.bindings import nvrtc


def _include() -> Path:
    """The headers' folder of the nvidia-cuda-runtime wheel."""
    spec = find_spec("nvidia.cu13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0], "include")


@cache
def cubin(source: str, architecture: str, *options: str) -> bytes:
    """The cubin of CUDA C++ text for `sm_90a` or the like. Fails with the compiler's own log."""
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), b"test.cu", 0, [], []))
    flags = [f"--gpu-architecture={architecture}", f"--include-path={_include()}", *options]
    status, *_ = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
        _checked(nvrtc.nvrtcGetProgramLog(program, log))
        raise AssertionError(log.decode())
    image = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
    _checked(nvrtc.nvrtcGetCUBIN(program, image))
    _checked(nvrtc.nvrtcDestroyProgram(program))
    return bytes(image)


def _checked(result: tuple[Any, ...]) -> Any:
    assert result[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS, result[0]
    return result[1] if len(result) > 1 else None
