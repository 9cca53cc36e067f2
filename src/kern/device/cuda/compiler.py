"""CUDA C++ to cubins through NVRTC, which needs no GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from cuda.bindings import nvrtc

from kern.device.base import DeviceError, DeviceUnavailable
from kern.manifest.errors import install_hint


class CompileError(DeviceError):
    """CUDA C++ that does not compile; the message is the compiler's."""

    code: ClassVar[str] = "compile"


def compile_cubin(source: str, name: str, target: str, options: Sequence[str] = ()) -> bytes:
    """The cubin of `source` for `target` (`sm_90`, `sm_90a`, …). `name` stands in the compiler's messages.

    Raises CompileError, DeviceUnavailable where NVRTC is not installed.
    """
    try:
        program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), 0, [], []))
    except RuntimeError as error:  # the bindings' own, where the library is not found
        raise DeviceUnavailable("NVRTC is not installed", install_hint("cuda")) from error
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
    """The architectures that NVRTC compiles for: 80 for sm_80. Raises DeviceUnavailable where it is not installed."""
    try:
        count = _checked(nvrtc.nvrtcGetNumSupportedArchs())
    except RuntimeError as error:
        raise DeviceUnavailable("NVRTC is not installed", install_hint("cuda")) from error
    return tuple(_checked(nvrtc.nvrtcGetSupportedArchs()))[:count]


def _log(program: Any) -> str:
    log = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
    _checked(nvrtc.nvrtcGetProgramLog(program, log))
    return log.rstrip(b"\0\n").decode(errors="replace")


def _checked(result: tuple[Any, ...]) -> Any:
    status, *values = result
    if status:
        _, text = nvrtc.nvrtcGetErrorString(status)
        raise CompileError(f"NVRTC failed: {text.decode()}")
    return values[0] if values else None
