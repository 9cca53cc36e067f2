"""Cubins for tests: CUDA C++ compiled by NVRTC, which needs no GPU."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import nvidia.cu13
from cuda.bindings import nvrtc

INCLUDE = Path(next(iter(nvidia.cu13.__path__)), "include")


@cache
def cubin(source: str, architecture: str, *options: str) -> bytes:
    """The cubin of CUDA C++ text for `sm_90a` or the like. Fails with the compiler's own log."""
    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), b"test.cu", 0, [], []))
    flags = [f"--gpu-architecture={architecture}", f"--include-path={INCLUDE}", *options]
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
