"""How fast the host's matrix products are: one row against the memory's read rate, many rows against numpy.

    python benchmarks/host_kernels.py [--passes 20] [--json benchmarks/results/host_kernels.json]

One row: every matrix of a SmolLM2-135M decode step (30 layers and the vocabulary's, 269 MB of bf16) is read once
per pass; reported as a share of the read bandwidth that the device measures in the same run. 512 rows: GFLOP/s, and
those of numpy's float32 product of the same sizes. Each figure is the best pass, since other work on the machine can
only slow a pass down.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

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
ROWS = 512


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


def best(call: Callable[[], object], passes: int) -> float:
    """Seconds of the fastest of `passes`, one more to warm up."""
    call()
    seconds = []
    for _ in range(passes):
        begun = perf_counter()
        call()
        seconds.append(perf_counter() - begun)
    return min(seconds)


def one_row(products: Products, rng: np.random.Generator, passes: int) -> dict[str, float]:
    """Every matrix of a decode step, once per pass."""
    shapes = [*MATRICES.values()] * LAYERS
    weights = random_bf16(rng, sum(n * k for n, k in [*shapes, VOCABULARY]))
    x, y, logits = random_bf16(rng, 1, 4096), np.zeros((1, 4096), np.uint16), np.zeros((1, VOCABULARY[0]), np.float32)
    launches, at = [], 0
    for n, k in shapes:
        launches.append(products.launch("matmul", y, x[:, :k], weights[at : at + n * k].reshape(n, k)))
        at += n * k
    launches.append(products.launch("matmul_f32", logits, x[:, : VOCABULARY[1]], weights[at:].reshape(VOCABULARY)))
    call, before = products.call(launches), products.device.read_bandwidth()
    seconds = best(call, passes)
    bandwidth = max(before, products.device.read_bandwidth())
    return {
        "bytes": weights.nbytes,
        "ms": seconds * 1e3,
        "gb_per_s": weights.nbytes / seconds / 1e9,
        "read_bandwidth_gb_per_s": bandwidth / 1e9,
        "share": weights.nbytes / seconds / bandwidth,
    }


def many_rows(products: Products, rng: np.random.Generator, passes: int) -> dict[str, dict[str, float]]:
    """Each matrix of a layer by itself."""
    found = {}
    for name, (n, k) in MATRICES.items():
        a, w = random_bf16(rng, ROWS, k), random_bf16(rng, n, k)
        c, left, right = (
            np.zeros((ROWS, n), np.uint16),
            *(rng.standard_normal(s, np.float32) for s in ((ROWS, k), (n, k))),
        )
        flops = 2 * ROWS * n * k
        ours = best(products.call([products.launch("matmul", c, a, w)]), passes)
        theirs = best(lambda left=left, right=right: left @ right.T, passes)
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
    decode = one_row(products, rng, options.passes)
    prefill = many_rows(products, rng, options.passes)
    print(device.description)
    print(
        f"1 row     {decode['ms']:7.2f} ms for {decode['bytes'] / 1e6:.0f} MB: {decode['gb_per_s']:.1f} GB/s, "
        f"{decode['share']:.1%} of {decode['read_bandwidth_gb_per_s']:.1f} GB/s"
    )
    for name, row in prefill.items():
        print(
            f"{ROWS} rows  {name:8s} {row['gflop_per_s']:6.0f} GFLOP/s, numpy float32 {row['numpy_gflop_per_s']:.0f}, "
            f"time {row['time_over_numpy']:.2f} of numpy's"
        )
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        part = options.json.with_suffix(".part")
        part.write_text(
            json.dumps({**about(["python", *sys.argv]), "one_row": decode, "many_rows": prefill}, indent=2) + "\n"
        )
        part.rename(options.json)


if __name__ == "__main__":
    main()
