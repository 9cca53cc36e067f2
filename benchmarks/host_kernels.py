"""How fast the host's matrix products are: few rows against one and the memory's read rate, many rows against numpy.

    python benchmarks/host_kernels.py [--passes 20] [--json benchmarks/results/host_kernels.json]

1 to 64 rows: every matrix of a SmolLM2-135M decode step (30 layers and the vocabulary's, 269 MB of bf16) is read once
per pass, the numbers of rows in turns; one row is also reported as a share of the read bandwidth that the device
measures in the same run. 512 rows: GFLOP/s, and those of numpy's float32 product of the same sizes. Each figure is the
best pass, since other work on the machine can only slow a pass down.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from about import about
from numpy.typing import NDArray

from kern.device.host.device import HostDevice
from kern.device.host.module import HostModule
from kern.kernels.compile_host import compile_host_modules
from kern.kernels.interfaces import INTERFACES
from kern.manifest.launches import KernelLaunch
from kern.manifest.params import layout

LAYERS = 30
MATRICES = {"qkv": (960, 576), "o": (576, 576), "gate_up": (3072, 576), "down": (576, 1536)}
VOCABULARY = (49_152, 576)
FEW = (1, 2, 4, 8, 16, 64)
MANY = 512


class Products:
    """The compiled matrix products, as calls on numpy arrays."""

    def __init__(self, device: HostDevice) -> None:
        self.device = device
        self.module: HostModule = device.load_module(compile_host_modules(device.target)["matmul.so"])

    def launch(self, entry: str, c: NDArray, a: NDArray, w: NDArray) -> KernelLaunch:
        """C [m, n] = A [m, k] · W [n, k]ᵀ; bf16 is given as uint16."""
        pointers = [array.ctypes.data for array in (c, a, w)]
        params = struct.pack("=3Q3i", *pointers, a.shape[0], *w.shape)
        function, where = self.module.function(entry), layout(tuple(INTERFACES[entry].values()))
        return KernelLaunch(entry, function, (1, 1, 1), (1, 1, 1), 0, params, where)

    def call(self, launches: list[KernelLaunch]) -> Callable[[], None]:
        """All of them, one after another."""
        prepared, stream = self.device.prepare(launches), self.device.stream()
        return lambda: self.device.launch(prepared, stream)


def random_bf16(rng: np.random.Generator, *shape: int) -> NDArray[np.uint16]:
    """Normally distributed numbers truncated to bf16, as their bits."""
    return (rng.standard_normal(shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def best(calls: Sequence[Callable[[], object]], passes: int) -> list[float]:
    """Seconds of the fastest of `passes` of each call, the calls in turns; one more pass to warm up."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(passes + 1):
        for call, times in zip(calls, seconds, strict=True):
            begun = perf_counter()
            call()
            times.append(perf_counter() - begun)
    return [min(times[1:]) for times in seconds]


def few_rows(products: Products, rng: np.random.Generator, passes: int) -> dict[str, Any]:
    """Every matrix of a decode step, once per pass, for each number of rows."""
    shapes = [*MATRICES.values()] * LAYERS
    weights = random_bf16(rng, sum(n * k for n, k in [*shapes, VOCABULARY]))
    # Launches hold addresses only: these arrays live until the last pass.
    y, logits = np.zeros((FEW[-1], 4096), np.uint16), np.zeros((FEW[-1], VOCABULARY[0]), np.float32)
    x = {k: random_bf16(rng, FEW[-1], k) for _, k in MATRICES.values()}

    def step(rows: int) -> Callable[[], None]:
        launches, at = [], 0
        for n, k in shapes:
            launches.append(products.launch("matmul", y, x[k][:rows], weights[at : at + n * k].reshape(n, k)))
            at += n * k
        head = products.launch("matmul_f32", logits, x[VOCABULARY[1]][:rows], weights[at:].reshape(VOCABULARY))
        launches.append(head)
        return products.call(launches)

    calls, before = [step(rows) for rows in FEW], products.device.read_bandwidth()
    seconds = best(calls, passes)
    bandwidth = max(before, products.device.read_bandwidth())
    return {
        "bytes": weights.nbytes,
        "read_bandwidth_gb_per_s": bandwidth / 1e9,
        "share": weights.nbytes / seconds[0] / bandwidth,
        "rows": {
            str(rows): {"ms": each * 1e3, "over_one_row": each / seconds[0]}
            for rows, each in zip(FEW, seconds, strict=True)
        },
    }


def many_rows(products: Products, rng: np.random.Generator, passes: int) -> dict[str, dict[str, float]]:
    """Each matrix of a layer by itself."""
    found = {}
    for name, (n, k) in MATRICES.items():
        a, w = random_bf16(rng, MANY, k), random_bf16(rng, n, k)
        c, left, right = (
            np.zeros((MANY, n), np.uint16),
            *(rng.standard_normal(s, np.float32) for s in ((MANY, k), (n, k))),
        )
        flops = 2 * MANY * n * k
        product = products.call([products.launch("matmul", c, a, w)])
        ours, theirs = best([product, lambda left=left, right=right: left @ right.T], passes)  # type: ignore[misc]
        found[name] = {
            "gflop_per_s": flops / ours / 1e9,
            "numpy_gflop_per_s": flops / theirs / 1e9,
            "time_over_numpy": ours / theirs,
        }
    return found


def main() -> None:
    """Measure and print, and write the result to a file if requested."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device, rng = HostDevice(), np.random.default_rng(0)
    products = Products(device)
    few = few_rows(products, rng, options.passes)
    many = many_rows(products, rng, options.passes)
    print(device.description)
    print(f"1 row reads {few['bytes'] / 1e6:.0f} MB at {few['share']:.1%} of {few['read_bandwidth_gb_per_s']:.1f} GB/s")
    for rows, figures in few["rows"].items():
        print(f"{rows:>3s} rows  {figures['ms']:7.2f} ms, {figures['over_one_row']:.2f} of one row's")
    for name, row in many.items():
        print(
            f"{MANY} rows  {name:8s} {row['gflop_per_s']:6.0f} GFLOP/s, numpy float32 {row['numpy_gflop_per_s']:.0f}, "
            f"time {row['time_over_numpy']:.2f} of numpy's"
        )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        part = options.json.with_suffix(".part")
        part.write_text(
            json.dumps({**about(["python", *sys.argv]), "few_rows": few, "many_rows": many}, indent=2) + "\n"
        )
        part.rename(options.json)


if __name__ == "__main__":
    main()
