"""How long the chain of a draft's tokens takes on a GPU, over the ways its kernel can be cut, as JSON on stdout.

    python benchmarks/cuda_chain.py [--vocabulary 151936] [--rank 256] > benchmarks/results/h200-chain.json

Random weights; a graph of seven steps, each chained to the one before by programmatic dependent launch. A figure is the
median of several times of ten replays, between which nothing else runs: of what the L2 keeps from step to step, the
first step of a replay has its share too. `gbps` counts the matrix alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import struct
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from time import perf_counter

import ml_dtypes
import numpy as np

from kern.device import open_device
from kern.device.base import Device, KernelLaunch, Module
from kern.manifest.expressions import evaluate
from kern.manifest.params import layout
from kern.manifest.types import Arg, ScratchArg, Step
from kern.models.kernels.compile_cuda import compile_cuda_modules
from kern.models.kernels.cuda_library import cuda_kernels
from kern.models.kernels.cuda_plan import CudaPlan, Tuning
from kern.models.kernels.cuda_sizes import Round, Sizes

BLOCK, REPLAYS, REPEATS = 7, 10, 15
SIZES = Sizes(hidden=128, ffn=128, q_heads=1, kv_heads=1, head_dim=64)
PACK = {"i32": "i", "f32": "f"}
KEPT = [1, 2, 3, 4, 6, 1 << 20]
"""One in how many slots of the matrix the L2 is to keep; 1: no difference is made."""


class Chain:
    """The buffers of seven steps."""

    def __init__(self, device: Device, vocabulary: int, rank: int) -> None:
        self.device, self.vocabulary, self.rank, self.stream = device, vocabulary, rank, device.stream()
        rng = np.random.default_rng(0)
        matrix = rng.standard_normal((vocabulary, rank), dtype=np.float32).astype(ml_dtypes.bfloat16)
        logits = rng.standard_normal((BLOCK, vocabulary), dtype=np.float32)
        self.matrix, self.table, self.logits = (self.held(array) for array in (matrix, matrix, logits))
        self.tokens = self.held(np.zeros(BLOCK + 1, np.int64))
        self.scratch = {name: self.held(np.zeros(1024, np.float32)) for name in ("best", "index")}

    def held(self, array: np.ndarray) -> int:
        address = self.device.alloc(array.nbytes).address
        self.device.write(address, memoryview(array.tobytes()), self.stream)
        self.stream.synchronize()
        return address

    def launches(self, plan: CudaPlan, images: Mapping[str, bytes]) -> list[KernelLaunch]:
        """All launches of the chain."""
        modules = {name: self.device.load_module(image) for name, image in images.items()}
        hashes = {name: hashlib.sha256(image).hexdigest() for name, image in images.items()}
        kernel = cuda_kernels(plan, hashes, qk_norm=True)["markov_argmax"]
        return [self.launch(step, modules, self.arguments(row)) for row in range(BLOCK) for step in kernel.impl.steps]

    def arguments(self, row: int) -> tuple[int, ...]:
        logits = self.logits + row * self.vocabulary * 4
        before, after = self.tokens + row * 8, self.tokens + (row + 1) * 8
        return after, logits, before, self.table, self.matrix, self.vocabulary, self.rank

    def launch(self, step: Step, modules: Mapping[str, Module], args: tuple[int, ...]) -> KernelLaunch:
        where, buffer = layout(step.params), b""
        for param, arg, offset in zip(step.params, step.args, where.offsets, strict=True):
            if isinstance(arg, Arg):
                value = args[arg.arg]
            else:
                value = self.scratch[arg.scratch] if isinstance(arg, ScratchArg) else int(arg.value)
            code = PACK[param.scalar] if param.scalar else "Q"
            buffer = buffer.ljust(offset, b"\0") + struct.pack(f"={code}", value)
        assert step.cubin is not None
        x, y, z = (evaluate(each, {}) for each in step.grid)
        function, memory = modules[step.cubin].function(step.symbol), evaluate(step.shared_mem, {})
        return KernelLaunch(step.symbol, function, (x, y, z), step.block, memory, buffer, where, pdl=step.pdl)

    def time(self, launches: list[KernelLaunch]) -> float:
        """Microseconds of a graph of the launches."""
        graph, times = self.device.capture([self.device.prepare(launches)]), []
        for _ in range(REPEATS + 1):
            self.stream.synchronize()
            begin = perf_counter()
            for _ in range(REPLAYS):
                graph.launch(self.stream)
            self.stream.synchronize()
            times.append((perf_counter() - begin) * 1e6 / REPLAYS)
        graph.free()
        return median(times[1:])

    def apart(self, launches: list[KernelLaunch]) -> list[float]:
        """Microseconds of each launch with an event before and after."""
        prepared = self.device.prepare(launches)
        runs = [self.device.profile(prepared, self.stream) for _ in range(REPEATS)]
        return [median(each) * 1e6 for each in zip(*runs[1:], strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--rank", type=int, default=256)
    options = parser.parse_args()
    device = open_device("cuda")
    chain = Chain(device, options.vocabulary, options.rank)
    found = []
    of_round = Round(BLOCK + 1, SIZES.ffn, options.rank)
    plans = [CudaPlan(device.target, SIZES, Tuning(kept_every=kept), of_round) for kept in KEPT]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        compiled = list(pool.map(compile_cuda_modules, plans))
    for kept, plan, images in zip(KEPT, plans, compiled, strict=True):
        launches = chain.launches(plan, images)
        us, apart = chain.time(launches), chain.apart(launches)
        gbps = BLOCK * options.vocabulary * options.rank * 2 / us / 1e3
        found.append(
            {
                "kept_every": kept,
                "slots": plan.markov_slots,
                "us": round(us, 1),
                "us_a_step": round(us / BLOCK, 2),
                "gbps": round(gbps),
                "apart_us": [round(each, 1) for each in apart[2:4]],
            }
        )
    print(json.dumps({"device": device.description, "rank": options.rank, "chains": found}, indent=1))


if __name__ == "__main__":
    main()
