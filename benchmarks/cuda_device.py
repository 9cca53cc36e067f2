"""What the CUDA device itself costs, as JSON on stdout: launches, graphs, host traffic, placing files, reading.

    python benchmarks/cuda_device.py [--gib 8] [--device cuda:0] [--folder /tmp] > benchmarks/results/cuda_device.json

`--gib` is the size of the file whose placing is timed; it is written to `--folder` and read once before, so
that the page cache holds it. Host times are medians; `us` is microseconds.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

from kern.device import open_device
from kern.device.base import Device, FileRegion, Function, KernelLaunch, Launch, OperatorLaunch, Stream
from kern.device.cuda.compiler import compile_cubin
from kern.manifest.params import Layout

LAUNCHES = 400
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


def launching(device: Device, stream: Stream, launches: Sequence[Launch]) -> dict[str, float]:
    """Host and whole time a launch: eager and as a graph."""
    prepared = device.prepare(launches)
    graph = device.capture([prepared])
    found = {"prepare_us": timed(device.prepare, launches) / len(launches) * 1e6}
    actions: dict[str, tuple[Callable[[], None], int]] = {
        "eager": (partial(device.launch, prepared, stream), len(launches)),
        "graph": (partial(graph.launch, stream), 1),
    }
    for name, (action, calls) in actions.items():
        host, whole = [], []
        for _ in range(30):
            start = perf_counter()
            action()
            host.append(perf_counter() - start)
            stream.synchronize()
            whole.append(perf_counter() - start)
        found[f"{name}_host_us"] = median(host[5:]) / calls * 1e6
        found[f"{name}_whole_us_per_launch"] = median(whole[5:]) / len(launches) * 1e6
    graph.free()
    return found


def traffic(device: Device, stream: Stream) -> dict[str, float]:
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


def placing(device: Device, folder: Path, size: int) -> dict[str, float]:
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
                placed = device.place(file.fileno(), regions, lambda done: None)
                found[f"{name}_{attempt}_GB_per_s"] = size / (perf_counter() - start) / 1e9
                placed.free()
    return found


def products(device: Device, stream: Stream) -> dict[str, object]:
    """The first operator's cost, then choosing, then launching, at shapes of a model of 4 billion parameters."""
    found: dict[str, object] = {}
    memory = device.alloc(512 << 20)
    base = memory.address

    def bind(m: int, n: int, k: int) -> OperatorLaunch:
        name = "cublaslt_bf16_tn"
        return OperatorLaunch(name, device.operator(name, [base, base + (64 << 20), base + (128 << 20), m, n, k]))

    found["first_bind_s"] = timed(bind, 1, 64, 64)
    for m in (1, 16, 512):
        for n, k in ((6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728)):
            choose = timed(bind, m, n, k)
            again = timed(bind, m, n, k)
            seconds = device.profile(device.prepare([bind(m, n, k)] * 20), stream)
            found[f"m{m}_n{n}_k{k}"] = {
                "choose_ms": choose * 1e3,
                "bind_us": again * 1e6,
                "run_us": median(seconds) * 1e6,
            }
    found["launching"] = launching(device, stream, [bind(1, 2560, 4096)] * 100)
    memory.free()
    return found


def importing() -> float:
    """Seconds that importing nvmath's cublasLt takes in a new process."""
    command = [
        sys.executable,
        "-c",
        "import time; t = time.perf_counter(); import nvmath.bindings.cublasLt; print(time.perf_counter() - t)",
    ]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=8)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--folder", type=Path, default=Path("/tmp"))
    options = parser.parse_args()
    start = perf_counter()
    device = open_device(options.device)
    found: dict[str, object] = {
        "device": device.description,
        "versions": {name: importlib.metadata.version(name) for name in ("cuda-bindings", "nvidia-cublas")},
        "open_s": perf_counter() - start,
    }
    stream = device.stream()
    module = device.load_module(compile_cubin(SOURCE, "nothing.cu", device.target))
    eight = launch(module.function("eight"), params=struct.pack("=4Q3if", *range(7), 0.0), layout=EIGHT)
    found["empty"] = launching(device, stream, [launch(module.function("nothing"))] * LAUNCHES)
    found["empty_pdl"] = launching(device, stream, [launch(module.function("dependent"), pdl=True)] * LAUNCHES)
    found["eight_parameters"] = launching(device, stream, [eight] * LAUNCHES)
    found["traffic"] = traffic(device, stream)
    found["read_bandwidth_TB_per_s"] = [device.read_bandwidth() / 1e12 for _ in range(2)]
    found["read_bandwidth_s"] = timed(device.read_bandwidth)
    found["place"] = placing(device, options.folder, options.gib << 30)
    if importlib.util.find_spec("nvmath"):
        found["import_nvmath_s"] = importing()
        found["products"] = products(device, stream)
    stream.close()
    module.unload()
    device.close()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
