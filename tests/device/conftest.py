"""What the device tests share: C compiled on the spot, a device, and launches in a line."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kern.device.host
from kern.device.base import Function
from kern.device.host.device import HostDevice
from kern.manifest.launches import KernelLaunch
from kern.manifest.params import Layout, Param, layout

HEADERS = Path(kern.device.host.__file__).parent
FORMATS = {"i32": "i", "u32": "I", "i64": "q", "f32": "f", "u8": "B"}

Compile = Callable[..., bytes]
MakeLaunch = Callable[..., KernelLaunch]


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Host kernels in C → the bytes of a shared object. Flags are the compiler's."""
    built: dict[tuple[str, ...], bytes] = {}

    def compile_source(source: str, *flags: str) -> bytes:
        if (source, *flags) not in built:
            folder = tmp_path_factory.mktemp("module")
            (folder / "k.c").write_text(
                '#define KERN_TARGET "x86-64-v2"\n#include <string.h>\n#include "kern_host.h"\n' + source
            )
            command = ["cc", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{HEADERS}", *flags]
            subprocess.run([*command, "-o", str(folder / "k.so"), str(folder / "k.c")], check=True)
            built[source, *flags] = (folder / "k.so").read_bytes()
        return built[source, *flags]

    return compile_source


@pytest.fixture
def device() -> Iterator[HostDevice]:
    """A host device of two threads."""
    device = HostDevice(threads=2)
    yield device
    device.close()


def pack(types: str, values: tuple[int | float, ...]) -> tuple[bytes, Layout]:
    """The parameter buffer of `types` (`ptr i32 …`) in the C ABI, and its layout."""
    names = types.split()
    placed = layout([Param.parse("inout ptr" if name == "ptr" else name) for name in names])
    size = placed.offsets[-1] + placed.sizes[-1] if names else 0
    buffer = bytearray(size)
    for name, offset, value in zip(names, placed.offsets, values, strict=True):
        struct.pack_into("=" + FORMATS.get(name, "Q"), buffer, offset, value)
    return bytes(buffer), placed


@pytest.fixture(scope="session")
def make_launch() -> MakeLaunch:
    """A kernel launch from a function, its parameters' types and their values."""

    def make(
        function: Function, types: str = "", *values: int | float, label: str = "launch", **more: object
    ) -> KernelLaunch:
        params, placed = pack(types, values)
        geometry: dict[str, object] = {"grid": (1, 1, 1), "block": (1, 1, 1), "shared_mem": 0, **more}
        return KernelLaunch(label=label, function=function, params=params, layout=placed, **geometry)  # type: ignore[arg-type]

    return make
