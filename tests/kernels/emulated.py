"""Host kernels for aarch64 on a machine of another kind: cross-compiled, and run under qemu's user mode."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from kern.kernels.compile_host import ABI_HEADERS, compile_host_modules
from kernels.harness import PACK, Call

TARGET = "aarch64"
COMPILER = "aarch64-linux-gnu-gcc"
SYSROOT = Path("/usr/aarch64-linux-gnu")
EMULATOR = ("qemu-aarch64", "-cpu", "neoverse-n1", "-L", str(SYSROOT))
"""The processor has the instructions of armv8.2-a, which the kernels are compiled for, and no SVE."""
PACKAGES = "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
DRIVER = Path(__file__).with_suffix(".c")


def check_installed() -> None:
    """Fails the test where the tools are not installed."""
    missing = [tool for tool in (COMPILER, EMULATOR[0]) if shutil.which(tool) is None]
    if missing or not SYSROOT.is_dir():
        what = ", ".join(missing) or str(SYSROOT)
        pytest.fail(f"tests for aarch64 need {what}: apt install {PACKAGES}", pytrace=False)


def cross_compiled() -> Mapping[str, bytes]:
    """The host kernels for aarch64."""
    check_installed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CC", COMPILER)
        return compile_host_modules(TARGET)


class Emulator:
    """A process under qemu that runs kernels, started when first needed and again after a kernel has ended it."""

    def __init__(self, images: Mapping[str, bytes], folder: Path) -> None:
        self._folder = folder
        for name, image in images.items():
            (folder / name).write_bytes(image)
        options = (f"-I{ABI_HEADERS}", f'-DKERN_TARGET="{TARGET}"', "-Wall", "-Werror", "-O1")
        subprocess.run([COMPILER, *options, DRIVER, "-o", folder / "driver"], check=True)
        self._process: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()

    def execute(self, calls: Sequence[Call], threads: int) -> None:
        """Make the calls in order. Arrays are copied both ways with what they are views of: kernels reach all of it."""
        owners = {id(owner): owner for call in calls for value in call.values if (owner := _owner(value)) is not None}
        index = {key: i for i, key in enumerate(owners)}
        request = [_words(len(owners))]
        for owner in owners.values():
            request += [_words(owner.nbytes), ctypes.string_at(owner.ctypes.data, owner.nbytes)]
        request.append(_words(len(calls)))
        for call in calls:
            request += [_text(str(self._folder / call.module)), _text(call.symbol)]
            request.append(struct.pack("=8IQ", *call.grid, *call.block, 0, threads, len(call.values)))
            for param, value in zip(call.params, call.values, strict=True):
                owner = _owner(value)
                if owner is not None:
                    request.append(_words(index[id(owner)] + 1, value.ctypes.data - owner.ctypes.data))
                else:
                    request.append(_words(0) + struct.pack(f"={PACK[param.scalar]}", value).ljust(8, b"\0"))
        answer = memoryview(self._exchange(b"".join(request), sum(owner.nbytes for owner in owners.values())))
        for owner in owners.values():
            ctypes.memmove(owner.ctypes.data, bytes(answer[: owner.nbytes]), owner.nbytes)
            answer = answer[owner.nbytes :]

    def _exchange(self, request: bytes, size: int) -> bytes:
        if self._process is None:
            command = [*EMULATOR, str(self._folder / "driver")]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(request)
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and said why
        answer = self._process.stdout.read(size)
        if len(answer) == size and self._process.poll() is None:
            return answer
        process, self._process = self._process, None
        said = process.communicate()[1].decode(errors="replace")
        pytest.fail(f"the emulated process ended with {process.returncode}: {said}")


def _owner(value: object) -> np.ndarray | None:
    """The array whose memory `value` is a view of, or itself; None for a number."""
    if not isinstance(value, np.ndarray):
        return None
    while isinstance(value.base, np.ndarray):
        value = value.base
    return value


def _words(*values: int) -> bytes:
    return struct.pack(f"={len(values)}Q", *values)


def _text(text: str) -> bytes:
    return _words(len(text.encode())) + text.encode()
