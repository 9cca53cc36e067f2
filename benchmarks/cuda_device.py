"""The costs of the CUDA device itself, as JSON on stdout: launches, graphs, host traffic, file upload, reading.

    python benchmarks/cuda_device.py [--gib 8] [--device cuda:0] [--folder /tmp] > benchmarks/results/cuda_device.json

`--gib` is the size of the file whose upload is timed; it is written to `--folder` and read once before, so that it
is in the page cache. Host times are medians; `us` is microseconds. Host times are for lists that fit into the
driver's empty queue, so that no launch waits for the GPU. `ways` compares ways to make the same driver call: ctypes
as the device uses it, ctypes holding Python's lock, the bindings, the call without attributes, and a loop in C where
there is a compiler, which is the driver's own share.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from about import about
from cuda.bindings import driver

from kern.device import open_device
from kern.device.base import DeviceError, FileRegion, Function, Stream
from kern.device.cuda import cublaslt
from kern.device.cuda.device import CudaDevice
from kern.device.cuda.stream import CudaStream
from kern.manifest.launches import KernelLaunch, Launch, OperatorLaunch
from kern.manifest.params import Layout
from kern.toolchain.nvrtc import compile_cubin

LAUNCHES = 400
ROUNDS = 40
LOOP = """
int loop(int (*launch)(void *, void *, void **, void **), void *config, void *function, void **parameters, int count) {
    int status = 0;
    for (int i = 0; i < count && !status; i++) status = launch(config, function, parameters, 0);
    return status;
}
"""
SOURCE = """
extern "C" __global__ void nothing(void) {}
extern "C" __global__ void dependent(void) { asm volatile("griddepcontrol.wait;"); }
extern "C" __global__ void eight(void *a, void *b, void *c, void *d, int e, int f, int g, float h) {}
"""
NONE = Layout((), ())
EIGHT = Layout((0, 8, 16, 24, 32, 36, 40, 44), (8, 8, 8, 8, 4, 4, 4, 4))
PIECE = 256 << 20


def timed(action: Callable[..., object], *arguments: object) -> float:
    """Seconds of one call."""
    start = perf_counter()
    action(*arguments)
    return perf_counter() - start


def launch(function: Function, params: bytes = b"", layout: Layout = NONE, *, pdl: bool = False) -> KernelLaunch:
    """One launch of a grid as wide as the GPU."""
    return KernelLaunch("nothing", function, (132, 1, 1), (256, 1, 1), 0, params, layout, pdl=pdl)


def launching(device: CudaDevice, stream: CudaStream, launches: Sequence[Launch]) -> dict[str, float]:
    """Host time and total time per launch: eager and as a graph."""
    prepared = device.prepare(launches)
    graph = device.capture([prepared])
    found = {"prepare_us": timed(device.prepare, launches) / len(launches) * 1e6}
    actions: dict[str, tuple[Callable[[], None], int]] = {
        "eager": (partial(device.launch, prepared, stream), len(launches)),
        "graph": (partial(graph.launch, stream), 1),
    }
    for name, (action, calls) in actions.items():
        host, whole = [], []
        for _ in range(ROUNDS):
            start = perf_counter()
            action()
            host.append(perf_counter() - start)
            stream.synchronize()
            whole.append(perf_counter() - start)
        found[f"{name}_host_us"] = median(host[5:]) / calls * 1e6
        found[f"{name}_whole_us_per_launch"] = median(whole[5:]) / len(launches) * 1e6
    graph.free()
    return found


def ways(device: CudaDevice, stream: CudaStream, launch: KernelLaunch) -> dict[str, float]:
    """Host microseconds per launch, for several ways to make the driver call."""
    prepared = device.prepare([launch])
    call = prepared.calls(stream)[0]
    config = prepared._launches[0].configuration
    function, pointers = launch.function.handle, call.args[2]
    shared, locked = ctypes.CDLL("libcuda.so.1"), ctypes.PyDLL("libcuda.so.1")
    address = ctypes.cast(pointers, ctypes.c_void_p).value
    plain = [ctypes.c_uint(each) for each in (*launch.grid, *launch.block, 0)]
    variants: dict[str, Callable[[], object]] = {
        "ctypes": call,
        "ctypes_locked": partial(locked["cuLaunchKernelEx"], *call.args),
        "bindings": partial(driver.cuLaunchKernelEx, config, function, address, 0),
        "without_attributes": partial(
            shared["cuLaunchKernel"], call.args[1], *plain, ctypes.c_void_p(stream.number), pointers, None
        ),
    }
    found = {}
    with device._context:
        for name, variant in variants.items():
            found[name] = host_us(stream, partial(repeat, variant, LAUNCHES))
        for count in (1, 16, 100):
            found[f"ctypes_{count}_at_a_time"] = host_us(stream, partial(repeat, call, count), count)
        if (loop := compiled_loop()) is not None:
            entry = ctypes.cast(shared["cuLaunchKernelEx"], ctypes.c_void_p)
            found["loop_in_c"] = host_us(stream, partial(loop, entry, *call.args[:3], LAUNCHES))
        found["nothing"] = host_us(stream, partial(shared["cuDriverGetVersion"], ctypes.byref(ctypes.c_int())), 1)
    return found


def host_us(stream: Stream, action: Callable[[], object], calls: int = LAUNCHES) -> float:
    """The median time of an action on an idle stream, in microseconds per call."""
    times = []
    for _ in range(ROUNDS):
        times.append(timed(action))
        stream.synchronize()
    return median(times[5:]) / calls * 1e6


def repeat(action: Callable[[], object], count: int) -> None:
    """Make a call several times."""
    for _ in range(count):
        action()


def compiled_loop() -> Callable[..., int] | None:
    """LOOP as a C function, None where there is no compiler."""
    if shutil.which("cc") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        command = ["cc", "-O2", "-shared", "-fPIC", "-xc", "-o", f"{folder}/loop.so", "-"]
        subprocess.run(command, input=LOOP, text=True, check=True)
        return ctypes.CDLL(f"{folder}/loop.so")["loop"]


def traffic(device: CudaDevice, stream: Stream) -> dict[str, float]:
    """Host time of small writes and reads, and the rate of large ones."""
    memory = device.alloc(64 << 20)

    def write(data: memoryview) -> None:
        device.write(memory.address, data, stream)

    def write_and_wait(data: memoryview) -> None:
        write(data)
        stream.synchronize()

    def read(size: int) -> None:
        device.read(memory.address, size, stream).wait()

    found = {}
    for size in (8, 4096, 65536):
        found[f"write_{size}_us"] = median(timed(write, memoryview(bytes(size))) for _ in range(300)) * 1e6
        stream.synchronize()
        found[f"read_{size}_us"] = median(timed(read, size) for _ in range(300)) * 1e6
    large = memoryview(bytearray(memory.size))
    found["write_GB_per_s"] = large.nbytes / min(timed(write_and_wait, large) for _ in range(3)) / 1e9
    found["read_GB_per_s"] = large.nbytes / min(timed(read, large.nbytes) for _ in range(3)) / 1e9
    memory.free()
    return found


def placing(device: CudaDevice, folder: Path, size: int) -> dict[str, float]:
    """The rate of `place` from the page cache: one region, regions of 50 MB, regions of 5 MB."""
    found: dict[str, float] = {}
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        block = os.urandom(PIECE)
        for _ in range(size // PIECE):
            file.write(block)
        file.flush()
        for name, step in (("whole", size), ("50MB", 50 << 20), ("5MB", 5 << 20)):
            regions = [FileRegion(at, min(step, size - at)) for at in range(0, size, step)]
            for attempt in ("first", "again"):
                start = perf_counter()
                placed = device.load_regions(file.fileno(), regions, lambda done: None)
                found[f"{name}_{attempt}_GB_per_s"] = size / (perf_counter() - start) / 1e9
                placed.free()
    return found


def products(device: CudaDevice, stream: Stream) -> dict[str, object]:
    """The first operator's cost, then choosing, then launching, at shapes of a model of 4 billion parameters."""
    found: dict[str, object] = {"load_library_s": timed(cublaslt.version)}
    memory = device.alloc(512 << 20)
    base = memory.address

    def bind(m: int, n: int, k: int) -> OperatorLaunch:
        name = "cublaslt_bf16_tn"
        return OperatorLaunch(name, name, (base, base + (64 << 20), base + (128 << 20), m, n, k))

    found["create_s"] = timed(refused, bind, 0, 1, 1)
    found["first_bind_s"] = timed(bind, 1, 64, 64)
    for m in (1, 16, 512):
        for n, k in ((6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728)):
            choose = timed(bind, m, n, k)
            again = median(timed(bind, m, n, k) for _ in range(200))
            seconds = device.profile(device.prepare([bind(m, n, k)] * 20), stream)
            found[f"m{m}_n{n}_k{k}"] = {
                "choose_ms": choose * 1e3,
                "bind_us": again * 1e6,
                "run_us": median(seconds) * 1e6,
            }
    layers = [(n, k) for n, k in ((6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728)) for _ in range(36)]
    found["new_length_ms"] = {m: timed(lambda m=m: [bind(m, n, k) for n, k in layers]) * 1e3 for m in (300, 301, 197)}
    found["launching"] = launching(device, stream, [bind(1, 2560, 4096)] * 100)
    memory.free()
    return found


def refused(action: Callable[..., object], *arguments: object) -> None:
    """Make a call that raises DeviceError."""
    with contextlib.suppress(DeviceError):
        action(*arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=8)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    options = parser.parse_args()
    start = perf_counter()
    device = open_device(options.device)
    opened = perf_counter()
    assert isinstance(device, CudaDevice)
    found: dict[str, object] = {
        **about(["python", *sys.argv]),
        "open_s": opened - start,
    }
    stream = device.stream()
    module = device.load_module(compile_cubin(SOURCE, "nothing.cu", device.target))
    eight = launch(module.function("eight"), params=struct.pack("=4Q3if", *range(7), 0.0), layout=EIGHT)
    found["empty"] = launching(device, stream, [launch(module.function("nothing"))] * LAUNCHES)
    found["empty_pdl"] = launching(device, stream, [launch(module.function("dependent"), pdl=True)] * LAUNCHES)
    found["eight_parameters"] = launching(device, stream, [eight] * LAUNCHES)
    found["ways"] = {
        "eight_parameters": ways(device, stream, eight),
        "pdl": ways(device, stream, launch(module.function("dependent"), pdl=True)),
    }
    found["traffic"] = traffic(device, stream)
    found["read_bandwidth_TB_per_s"] = [device.read_bandwidth() / 1e12 for _ in range(2)]
    found["read_bandwidth_s"] = timed(device.read_bandwidth)
    found["place"] = placing(device, options.folder, options.gib << 30)
    found["products"] = products(device, stream)
    stream.close()
    module.unload()
    device.close()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
