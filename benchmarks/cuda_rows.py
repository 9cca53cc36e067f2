"""How long attention takes for the rows of a round of speculation on a GPU, as JSON on stdout.

    python benchmarks/cuda_rows.py [--contexts 100,2000,8000] > benchmarks/results/cuda_rows.json

The shape of Qwen3-4B, 36 layers, each with its own keys, without matrix products between them. A figure is
microseconds per layer, of a graph of all layers and of each launch alone: `rows` and `rows_full` for eight rows, what
`rows` replaces (`apart`: norms and rotation, then attention of a chunk), and attention of one token (`token`).
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from statistics import median

from about import about
from cuda_entries import Entries, Gpu

from kern.contracts.text import PAGE
from kern.device import open_device
from kern.kernels.compile_cuda import compile_cuda_modules
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.cuda_sizes import Round, Sizes
from kern.kernels.interfaces import INTERFACES
from kern.manifest.launches import KernelLaunch

LAYERS, ROWS = 36, 8
SIZES = Sizes(hidden=2560, ffn=9728, q_heads=32, kv_heads=8, head_dim=128)
EPS, SCALE = 1e-6, 0.088
CALLS = {
    "rows": ("norm_append_attention_rows",),
    "rows_full": ("norm_append_attention_rows_full",),
    "apart": ("norm_rope_cache", "attention_prefill"),
    "token": ("norm_append_attention",),
}


class Layers:
    """The buffers of all layers with `context` keys before the rows' own; values that do not matter are zero."""

    def __init__(self, gpu: Gpu, entries: Entries, context: int) -> None:
        self.gpu, self.entries = gpu, entries
        self.length, self.pages = context + ROWS, -(-(context + ROWS) // PAGE)
        self.layer = 2 * SIZES.kv_heads * PAGE * SIZES.head_dim
        self.width = SIZES.q_size + 2 * SIZES.kv_heads * SIZES.head_dim
        self.pool = gpu.zeros(2 * self.pages * LAYERS * self.layer)
        self.qkv, self.out = gpu.zeros(2 * ROWS * self.width), gpu.zeros(2 * ROWS * SIZES.q_size)
        self.norm, self.angles = gpu.zeros(2 * SIZES.head_dim), gpu.zeros(4 * self.pages * PAGE * SIZES.head_dim)
        places = range(context, self.length)
        self.places = gpu.held(struct.pack(f"={ROWS}q", *places))  # positions, and slots: pages are in their order
        self.table = gpu.held(struct.pack(f"={self.pages}i", *range(self.pages)))
        self.lengths, self.starts = gpu.held(struct.pack("=i", self.length)), gpu.held(struct.pack("=2i", 0, ROWS))

    def arguments(self, entry: str, layer: int) -> dict[str, int | float]:
        """What an entry takes."""
        known = {
            "o": self.out,
            "q": self.qkv,
            "qkv": self.qkv,
            "q_norm": self.norm,
            "k_norm": self.norm,
            "positions": self.places,
            "slots": self.places,
            "cos_sin": self.angles,
            "pool": self.pool + 2 * layer * self.layer,
            "block_table": self.table,
            "seq_lens": self.lengths,
            "cu_seqlens": self.starts,
            "seqs": 1,
            "tokens": ROWS,
            "pages": self.pages,
            "q_heads": SIZES.q_heads,
            "kv_heads": SIZES.kv_heads,
            "head_dim": SIZES.head_dim,
            "row_stride": self.width,
            "page_stride": LAYERS * self.layer,
            "eps": EPS,
            "scale": SCALE,
        }
        return {name: known[name] for name in INTERFACES[entry]}

    def launches(self, call: str) -> list[KernelLaunch]:
        """All launches of a call in every layer."""
        tokens = 1 if call == "token" else ROWS
        return [
            launch
            for layer in range(LAYERS)
            for entry in CALLS[call]
            for launch in self.entries.launches(entry, self.arguments(entry, layer), tokens=tokens, seqs=1)
        ]

    def times(self, call: str) -> dict[str, object]:
        """Microseconds per layer: of a graph, and of each launch of a layer alone."""
        launches = self.launches(call)
        kinds, apart = len(launches) // LAYERS, self.gpu.apart(launches)
        alone = [round(median(apart[kind::kinds]), 2) for kind in range(kinds)]
        return {"us": round(self.gpu.time(launches) / LAYERS, 2), "alone_us": alone}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", default="100,2000,8000")
    options = parser.parse_args()
    gpu = Gpu(open_device("cuda"))
    plan = CudaPlan(gpu.device.target, SIZES, round=Round(ROWS, SIZES.ffn, 32))
    entries, found = Entries(gpu, plan, compile_cuda_modules(plan)), {}
    for context in map(int, options.contexts.split(",")):
        layers = Layers(gpu, entries, context)
        found[context] = {call: layers.times(call) for call in CALLS}
    print(json.dumps({**about(["python", *sys.argv]), "contexts": found}, indent=1))


if __name__ == "__main__":
    main()
