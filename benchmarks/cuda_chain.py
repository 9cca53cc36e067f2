"""How long the chain of a draft's tokens takes on a GPU, for several ways to split its kernel, as JSON on stdout.

    python benchmarks/cuda_chain.py [--vocabulary 151936] [--rank 256] [--sequences 1] > \
        benchmarks/results/h200-chain.json

Random weights; a graph of seven steps, each chained to the one before by programmatic dependent launch. A figure is the
median of several times of ten replays, between which nothing else runs, so the first step of a replay also finds what
the L2 keeps from step to step. `gbps` counts only the matrix.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import ml_dtypes
import numpy as np
from about import about
from cuda_entries import Entries, Gpu

from kern.device import open_device
from kern.kernels.compile_cuda import compile_cuda_modules
from kern.kernels.cuda_plan import CudaPlan, Tuning
from kern.kernels.cuda_sizes import Round, Sizes
from kern.manifest.launches import KernelLaunch

BLOCK = 7
SIZES = Sizes(hidden=128, ffn=128, q_heads=1, kv_heads=1, head_dim=64)
KEPT = [1, 2, 3, 4, 6, 1 << 20]
"""One in how many slots of the matrix the L2 is to keep; 1: no difference is made."""


class Chain:
    """The buffers of seven steps of so many sequences."""

    def __init__(self, gpu: Gpu, vocabulary: int, rank: int, seqs: int = 1) -> None:
        self.vocabulary, self.rank, self.seqs = vocabulary, rank, seqs
        rng = np.random.default_rng(0)
        matrix = rng.standard_normal((vocabulary, rank), dtype=np.float32).astype(ml_dtypes.bfloat16)
        logits = rng.standard_normal((seqs * BLOCK, vocabulary), dtype=np.float32)
        self.matrix, self.table, self.logits = (gpu.held(array.tobytes()) for array in (matrix, matrix, logits))
        self.tokens = gpu.zeros(seqs * (BLOCK + 1) * 8)

    def launches(self, entries: Entries) -> list[KernelLaunch]:
        """All launches of the chain."""
        steps = [entries.launches("markov_argmax", self.arguments(row), seqs=self.seqs) for row in range(BLOCK)]
        return [launch for step in steps for launch in step]

    def arguments(self, row: int) -> dict[str, int]:
        """What the step of a row takes."""
        logits = self.logits + row * self.vocabulary * 4
        before, after = self.tokens + row * 8, self.tokens + (row + 1) * 8
        rows = {"next": after, "logits": logits, "before": before, "seqs": self.seqs, "rows": BLOCK + 1}
        return {**rows, "w1": self.table, "w2": self.matrix, "vocabulary": self.vocabulary, "rank": self.rank}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--rank", type=int, default=256)
    parser.add_argument("--sequences", type=int, default=1)
    options = parser.parse_args()
    gpu = Gpu(open_device("cuda"))
    chain = Chain(gpu, options.vocabulary, options.rank, options.sequences)
    found = []
    of_round = Round(BLOCK + 1, SIZES.ffn, options.rank)
    plans = [CudaPlan(gpu.device.target, SIZES, Tuning(kept_every=kept), of_round) for kept in KEPT]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        compiled = list(pool.map(compile_cuda_modules, plans))
    for kept, plan, images in zip(KEPT, plans, compiled, strict=True):
        launches = chain.launches(Entries(gpu, plan, images))
        us, apart = gpu.time(launches), gpu.apart(launches)
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
    what = {"rank": options.rank, "sequences": options.sequences}
    print(json.dumps({**about(["python", *sys.argv]), **what, "chains": found}, indent=1))


if __name__ == "__main__":
    main()
