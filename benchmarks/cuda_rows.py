"""How long attention takes for the rows of a round of speculation on a GPU, as JSON on stdout.

    python benchmarks/cuda_rows.py [--contexts 100,2000,8000] > benchmarks/results/cuda_rows.json

The shape of Qwen3-4B, 36 layers each with keys of its own, and no products between them. A figure is microseconds a
layer of a graph of all, and of each launch alone: `rows` and `rows_full` for eight rows, beside what they take the
place of (`apart` and `apart_full`: norms and rotation, then attention of a chunk) and attention of one token (`token`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
from collections.abc import Mapping
from statistics import median
from time import perf_counter

from kern.device import open_device
from kern.device.base import Device, KernelLaunch, Module
from kern.manifest.expressions import evaluate
from kern.manifest.params import DTYPE_BYTES, layout
from kern.manifest.types import Arg, Kernel, ScratchArg, Step
from kern.models.kernels.compile_cuda import compile_cuda_modules
from kern.models.kernels.cuda_library import cuda_kernels
from kern.models.kernels.cuda_plan import CudaPlan
from kern.models.kernels.cuda_sizes import Round, Sizes
from kern.text.contract import PAGE

LAYERS, ROWS, REPLAYS, REPEATS = 36, 8, 10, 15
SIZES = Sizes(hidden=2560, ffn=9728, q_heads=32, kv_heads=8, head_dim=128)
PACK = {"i32": "i", "i64": "q", "f32": "f"}
EPS, SCALE = 1e-6, 0.088
CALLS = {
    "rows": ("norm_append_attention_rows",),
    "rows_full": ("norm_append_attention_rows_full",),
    "apart": ("norm_rope_cache", "attention_prefill"),
    "apart_full": ("norm_rope_cache", "attention_full"),
    "token": ("norm_append_attention",),
}


class Layers:
    """The buffers of all layers with `context` keys before the rows' own; values that do not matter are zero."""

    def __init__(self, device: Device, kernels: Mapping[str, Kernel], context: int) -> None:
        self.device, self.kernels, self.stream = device, kernels, device.stream()
        self.length, self.pages = context + ROWS, -(-(context + ROWS) // PAGE)
        self.layer = 2 * SIZES.kv_heads * PAGE * SIZES.head_dim
        self.width = SIZES.q_size + 2 * SIZES.kv_heads * SIZES.head_dim
        self.pool = self.zeros(2 * self.pages * LAYERS * self.layer)
        self.qkv, self.out = self.zeros(2 * ROWS * self.width), self.zeros(2 * ROWS * SIZES.q_size)
        self.norm, self.angles = self.zeros(2 * SIZES.head_dim), self.zeros(4 * self.pages * PAGE * SIZES.head_dim)
        places = range(context, self.length)
        self.places = self.held(struct.pack(f"={ROWS}q", *places))  # positions, and slots: pages are in their order
        self.table = self.held(struct.pack(f"={self.pages}i", *range(self.pages)))
        self.lengths, self.starts = self.held(struct.pack("=i", self.length)), self.held(struct.pack("=2i", 0, ROWS))
        self.scratch = self.zeros(1 << 24)

    def zeros(self, size: int) -> int:
        address = self.device.alloc(size).address
        self.device.zero(address, size, self.stream)
        return address

    def held(self, octets: bytes) -> int:
        address = self.device.alloc(len(octets)).address
        self.device.write(address, memoryview(octets), self.stream)
        self.stream.synchronize()
        return address

    def arguments(self, entry: str, layer: int) -> tuple[int | float, ...]:
        pool = self.pool + 2 * layer * self.layer
        heads = SIZES.q_heads, SIZES.kv_heads, SIZES.head_dim, self.width, LAYERS * self.layer
        where = self.norm, self.norm, self.places, self.angles, pool, self.places
        if entry == "norm_rope_cache":
            return self.qkv, *where, *heads, EPS
        if entry in ("attention_prefill", "attention_full"):
            return self.out, self.qkv, pool, self.table, self.lengths, self.starts, 1, self.pages, *heads, SCALE
        rows = () if entry == "norm_append_attention" else (ROWS,)
        return self.out, self.qkv, *where, self.table, self.lengths, *rows, self.pages, *heads, EPS, SCALE

    def launches(self, call: str, modules: Mapping[str, Module]) -> list[KernelLaunch]:
        """All launches of a call in every layer."""
        return [
            self.launch(
                step, modules, self.arguments(entry, layer), self.kernels[entry], 1 if call == "token" else ROWS
            )
            for layer in range(LAYERS)
            for entry in CALLS[call]
            for step in self.kernels[entry].impl.steps
        ]

    def launch(
        self, step: Step, modules: Mapping[str, Module], args: tuple[int | float, ...], kernel: Kernel, tokens: int
    ) -> KernelLaunch:
        symbols, scratch, at = {"tokens": tokens, "seqs": 1}, {}, self.scratch
        for name, array in kernel.impl.scratch.items():
            size = DTYPE_BYTES[array.dtype]
            for extent in array.shape:
                size *= evaluate(extent, symbols)
            scratch[name], at = at, at + -(-size // 256) * 256
        assert at <= self.scratch + (1 << 24)
        where, buffer = layout(step.params), b""
        for param, arg, offset in zip(step.params, step.args, where.offsets, strict=True):
            if isinstance(arg, Arg):
                value = args[arg.arg]
            else:
                value = scratch[arg.scratch] if isinstance(arg, ScratchArg) else arg.value
            code = PACK[param.scalar] if param.scalar else "Q"
            buffer = buffer.ljust(offset, b"\0") + struct.pack(f"={code}", value)
        assert step.cubin is not None
        x, y, z = (evaluate(each, symbols) for each in step.grid)
        function, memory = modules[step.cubin].function(step.symbol), evaluate(step.shared_mem, symbols)
        return KernelLaunch(step.symbol, function, (x, y, z), step.block, memory, buffer, where, pdl=step.pdl)

    def time(self, launches: list[KernelLaunch]) -> float:
        """Microseconds a layer in a graph of the launches."""
        graph, times = self.device.capture([self.device.prepare(launches)]), []
        for _ in range(REPEATS + 1):
            self.stream.synchronize()
            begin = perf_counter()
            for _ in range(REPLAYS):
                graph.launch(self.stream)
            self.stream.synchronize()
            times.append((perf_counter() - begin) * 1e6 / REPLAYS / LAYERS)
        graph.free()
        return median(times[1:])

    def alone(self, launches: list[KernelLaunch]) -> list[float]:
        """Microseconds of each launch of a layer, with an event before and after."""
        each = self.device.profile(self.device.prepare(launches), self.stream)
        kinds = len(launches) // LAYERS
        return [median(each[kind::kinds]) * 1e6 for kind in range(kinds)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", default="100,2000,8000")
    options = parser.parse_args()
    device = open_device("cuda")
    plan = CudaPlan(device.target, SIZES, round=Round(ROWS, SIZES.ffn, 32))
    images = compile_cuda_modules(plan)
    modules = {name: device.load_module(image) for name, image in images.items()}
    hashes = {name: hashlib.sha256(image).hexdigest() for name, image in images.items()}
    kernels, found = cuda_kernels(plan, hashes, qk_norm=True), {}
    for context in map(int, options.contexts.split(",")):
        layers = Layers(device, kernels, context)
        launches = {call: layers.launches(call, modules) for call in CALLS}
        found[context] = {
            call: {"us": round(layers.time(each), 2), "alone_us": [round(us, 2) for us in layers.alone(each)]}
            for call, each in launches.items()
        }
    print(json.dumps({"device": device.description, "contexts": found}, indent=1))


if __name__ == "__main__":
    main()
