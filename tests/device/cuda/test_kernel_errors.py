"""Kernels that fail: the error names the launch or the list, and the process closes cleanly."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

SOURCE = """
extern "C" __global__ void fine(int *x) { if (x) *x = 1; }
extern "C" __global__ void wild(int *x) { *(volatile int *)8 = 1; }
extern "C" __global__ void misaligned(int *x) { *(volatile long long *)((char *)x + 1) = 1; }
extern "C" __global__ void trap(int *x) { asm("trap;"); }
"""

# In a separate process: such an error ends the context for good.
PROGRAM = """
import struct, sys
from kern.device import open_device
from kern.device.base import DeviceError, LaunchError
from kern.manifest.launches import KernelLaunch
from kern.manifest.params import Layout

path, symbol, way = sys.argv[1:]
device = open_device("cuda")
stream, memory, module = device.stream(), device.alloc(64), device.load_module(open(path, "rb").read())
one, params = (1, 1, 1), struct.pack("=Q", memory.address)
launches = [
    KernelLaunch(f"decode · L{index} · {name}", module.function(name), one, one, 0, params, Layout((0,), (8,)))
    for index, name in enumerate(("fine", symbol, "fine"))
]
prepared = device.prepare(launches)
pending = device.read(memory.address, 8, stream)
try:
    if way == "graph":
        graph = device.capture([prepared])
        graph.launch(stream)
    else:
        for each in [device.prepare([launch]) for launch in launches] if way == "singly" else [prepared]:
            device.launch(each, stream)
            if way == "singly":
                stream.synchronize()
    later = device.read(memory.address, 8, stream)
    stream.synchronize()
except LaunchError as error:
    print(error)
for call in (stream.synchronize, lambda: device.launch(prepared, stream), lambda: device.alloc(8), device.free_memory):
    try:
        call()
        print("no error")
    except LaunchError as error:
        print("again:", error)
if way == "graph":
    graph.free()
for give_back in (stream.close, module.unload, memory.free, device.close):
    give_back()
print("closed")
"""


@pytest.mark.parametrize("way", ["singly", "eager", "graph"])
@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("wild", "ILLEGAL_ADDRESS"),
        ("misaligned", "MISALIGNED_ADDRESS"),
        ("trap", "(LAUNCH_FAILED|ILLEGAL_INSTRUCTION)"),
    ],
)
def test_a_kernel_s_error_is_reported_and_everything_closes(
    compile_cuda: Callable[[str], bytes], tmp_path: Path, symbol: str, name: str, way: str
) -> None:
    path = tmp_path / "kernels.cubin"
    path.write_bytes(compile_cuda(SOURCE))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), symbol, way], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    first, *again, last = ended.stdout.splitlines()
    where = f" in decode · L1 · {symbol}" if way == "singly" else ".*one of these launch lists: .*decode · L0 · fine"
    assert re.match(rf"a kernel on cuda:0 failed,?{where}.*CUDA_ERROR_{name}", first), first
    assert again == [f"again: {first}"] * 4
    assert last == "closed"
