"""How long the products of a step of many rows take on a GPU, next to cublasLt and the products of 8 rows; as JSON.

    python benchmarks/cuda_wide.py [--rows 16,32,64,128] [--layers 36] > benchmarks/results/h200-wide.json

The shape of Qwen3-4B with random weights, other ones for each layer, and a head. A figure is microseconds of a graph:
`all` for every product of a step, then each product of all layers and the head. `cublas` are the products alone,
through torch, without the norms, the activation and the additions that are part of the others. Before that the five
entries are compared with float64; their `error` is the largest, relative to the size of a row.
"""

from __future__ import annotations

import argparse
import json
import sys
from statistics import median
from typing import Any

import torch
from about import about
from cuda_entries import Entries, Gpu

from kern.device import open_device
from kern.kernels.compile_cuda import compile_cuda_modules
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.cuda_sizes import Sizes
from kern.kernels.cuda_wide import WIDE_TARGET
from kern.manifest.launches import KernelLaunch

SIZES = Sizes(hidden=2560, ffn=9728, q_heads=32, kv_heads=8, head_dim=128, sequences=64)
VOCABULARY, QKV, EPS = 151_936, 6144, 1e-6
NAMES = "rms_matmul", "output_matmul_add", "rms_gate_up", "down_matmul_add", "rms_matmul_f32"
MOST = 128
CHECKED = 9, 16, 17, 31, 32, 33, 64, 65, MOST


def random(*shape: int, scale: float = 1.0) -> torch.Tensor:
    """Normally distributed, in bf16."""
    return torch.randn(*shape, dtype=torch.bfloat16, device="cuda") * scale


class Model:
    """Weights, and the buffers of a step of at most 128 rows."""

    def __init__(self, layers: int) -> None:
        h, f, q = SIZES.hidden, SIZES.ffn, SIZES.q_size
        shapes = {"rms_matmul": (QKV, h), "output_matmul_add": (h, q), "rms_gate_up": (2 * f, h)}
        self.shapes = {**shapes, "down_matmul_add": (h, f), "rms_matmul_f32": (VOCABULARY, h)}
        self.weights = {
            name: [random(*shape, scale=0.02) for _ in range(1 if "f32" in name else layers)]
            for name, shape in self.shapes.items()
        }
        self.norm = 1 + random(h, scale=0.1)
        self.x = {"output_matmul_add": random(MOST, q), "down_matmul_add": random(MOST, f)}
        self.residual = torch.randn(MOST, h, device="cuda")
        self.weighted, self.squares = random(MOST, h), torch.empty(MOST, 132, device="cuda")
        self.out = {"rms_matmul": random(MOST, QKV), "rms_gate_up": random(MOST, f)}
        self.out["rms_matmul_f32"] = torch.empty(MOST, VOCABULARY, device="cuda")
        self.refresh()

    def refresh(self) -> None:
        """New inputs; outputs that are NaN."""
        self.residual.normal_()
        self.weighted.copy_(self.residual.to(torch.bfloat16) * self.norm)
        self.squares.fill_(0)
        self.squares[:, 5] = (self.residual**2).sum(1)
        for each in self.x.values():
            each.normal_()
        for each in self.out.values():
            each.fill_(float("nan"))

    def launches(self, entries: Entries, name: str, layer: int, rows: int, suffix: str) -> list[KernelLaunch]:
        """One product."""
        n, k = self.shapes[name]
        sizes: dict[str, int | float] = {"m": rows, "n": SIZES.ffn if "gate" in name else n, "k": k}
        given: dict[str, Any] = {"w": self.weights[name][layer], "weighted": self.weighted, "squares": self.squares}
        if name in self.x:
            given |= {"residual": self.residual, "x": self.x[name], "weight": self.norm}
        else:
            given |= {"y": self.out[name]}
            sizes["eps"] = EPS
        pointers = {key: tensor.data_ptr() for key, tensor in given.items()}
        return entries.launches(name + suffix, {**pointers, **sizes}, tokens=rows)

    def calls(self, which: str) -> list[tuple[str, int]]:
        """Each product of a step, or each of one kind."""
        if which != "all":
            return [(which, layer) for layer in range(len(self.weights[which]))]
        layers = range(len(self.weights["rms_matmul"]))
        return [(name, layer) for layer in layers for name in NAMES[:-1]] + [("rms_matmul_f32", 0)]

    def wanted(self, name: str, rows: int) -> dict[str, torch.Tensor]:
        """What a product gives, in float64."""
        w, inverse = self.weights[name][0].double(), ((self.residual**2).double().sum(1) / SIZES.hidden + EPS) ** -0.5
        if name in self.x:
            x = self.residual[:rows].double() + (self.x[name][:rows].double() @ w.T).to(torch.bfloat16).double()
            return {"residual": x, "weighted": x * self.norm.double(), "squares": (x**2).sum(1, keepdim=True)}
        product = (self.weighted[:rows].double() @ w.T) * inverse[:rows, None]
        if "gate" not in name:
            return {"out": product}
        gate, up = product.chunk(2, dim=1)
        return {"out": torch.nn.functional.silu(gate) * up}

    def got(self, name: str, rows: int) -> dict[str, torch.Tensor]:
        """What it gave."""
        if name not in self.x:
            return {"out": self.out[name][:rows]}
        squares = self.squares[:rows].sum(1, keepdim=True)
        return {"residual": self.residual[:rows], "weighted": self.weighted[:rows], "squares": squares}


def checked(gpu: Gpu, model: Model, entries: Entries, name: str, rows: int) -> float:
    """The largest error of a product, relative to the root mean square of what is wanted."""
    model.refresh()
    wanted, before = model.wanted(name, rows), model.residual.clone()
    if name in model.x:
        model.squares.fill_(float("nan"))
        model.weighted.fill_(float("nan"))
    torch.cuda.synchronize()
    gpu.device.launch(gpu.device.prepare(model.launches(entries, name, 0, rows, "_wide")), gpu.stream)
    gpu.stream.synchronize()
    worst = 0.0
    for key, got in model.got(name, rows).items():
        error = (got.double() - wanted[key]).abs().max() / wanted[key].square().mean().sqrt()
        worst = max(worst, float(error) if bool(error.isfinite()) else float("inf"))
    behind = model.residual[rows:] == before[rows:] if name in model.x else model.out[name][rows:].isnan()
    return worst if bool(behind.all()) else float("inf")


def alone(gpu: Gpu, model: Model, entries: Entries, rows: int) -> list[str]:
    """Products whose first row differs in its bits from what it is among fewer rows."""
    differ = []
    for name in NAMES:
        model.refresh()
        found = []
        kept = [each.clone() for each in (model.residual, model.weighted, model.squares)]
        for count in (9, 32, rows):
            for to, each in zip((model.residual, model.weighted, model.squares), kept, strict=True):
                to.copy_(each)
            torch.cuda.synchronize()
            gpu.device.launch(gpu.device.prepare(model.launches(entries, name, 0, count, "_wide")), gpu.stream)
            gpu.stream.synchronize()
            found.append([each[:9].clone() for each in model.got(name, MOST).values()])
        if not all(torch.equal(a, b) for each in found[1:] for a, b in zip(found[0], each, strict=True)):
            differ.append(name)
    return differ


def timed(gpu: Gpu, model: Model, entries: Entries, rows: int, suffix: str) -> dict[str, float]:
    """Microseconds of all products, and of each kind."""
    found = {}
    for which in ("all", *NAMES):
        model.refresh()
        torch.cuda.synchronize()
        launches = [
            each for name, layer in model.calls(which) for each in model.launches(entries, name, layer, rows, suffix)
        ]
        found[which] = round(gpu.time(launches), 1)
    return found


def cublas(model: Model, rows: int) -> dict[str, float]:
    """The same through torch."""
    inputs = {name: random(rows, shape[1]) for name, shape in model.shapes.items()}
    outputs = {name: inputs[name] @ model.weights[name][0].T for name in NAMES}
    found = {}
    for which in ("all", *NAMES):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for name, layer in model.calls(which):
                torch.mm(inputs[name], model.weights[name][layer].T, out=outputs[name])
        times = []
        for _ in range(8):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(10):
                graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 100)
        found[which] = round(median(times[1:]), 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="16,32,64,128")
    parser.add_argument("--layers", type=int, default=36)
    options = parser.parse_args()
    gpu = Gpu(open_device("cuda"))
    plan = CudaPlan(WIDE_TARGET, SIZES)
    entries, model = Entries(gpu, plan, compile_cuda_modules(plan)), Model(options.layers)
    every = [int(rows) for rows in options.rows.split(",")]
    found: dict[str, Any] = {
        **about(["python", *sys.argv]),
        "error": {name: {rows: checked(gpu, model, entries, name, rows) for rows in CHECKED} for name in NAMES},
        "differ": alone(gpu, model, entries, MOST),
        "wide": {rows: timed(gpu, model, entries, rows, "_wide") for rows in every},
        "cublas": {rows: cublas(model, rows) for rows in every},
        "few": {8: timed(gpu, model, entries, 8, "")},
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
