"""How long attention of one token per sequence takes on a GPU, checked before it is timed; JSON with `--json`.

    python benchmarks/cuda_attention.py [--quick] [--json benchmarks/results/cuda_attention.json]

The shape of Qwen3-4B, 36 layers, each with its own keys, on random pages scattered over the pool. A time is that of a
graph of all layers in which attention is between the product before it and the one after it, less that of the products
alone: what attention adds to a step. `floor` is the time that reading all keys and values takes at the device's read
rate. Needs PyTorch, for memory and references.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from about import about
from cuda_entries import Entries, Gpu

from kern.contracts.text import PAGE
from kern.device import open_device
from kern.kernels.compile_cuda import compile_cuda_modules
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.cuda_sizes import Sizes
from kern.kernels.interfaces import INTERFACES
from kern.manifest.launches import KernelLaunch

LAYERS, MOST = 36, 256
SIZES = Sizes(hidden=2560, ffn=9728, q_heads=32, kv_heads=8, head_dim=128, sequences=MOST)
Q_HEADS, KV_HEADS, DIM = SIZES.q_heads, SIZES.kv_heads, SIZES.head_dim
WIDTH = SIZES.q_size + 2 * KV_HEADS * DIM
PAGE_ELEMENTS = 2 * KV_HEADS * PAGE * DIM
PAGE_STRIDE, LAYER_STRIDE = LAYERS * PAGE_ELEMENTS, PAGE_ELEMENTS
TOKEN_BYTES = 4 * KV_HEADS * DIM
EPS, SCALE = 1e-6, DIM**-0.5
POSITIONS = 32_768
SOUND = 0.005
"""The largest allowed error of a sequence's output, relative to its norm; rounding to bf16 gives 0.002."""

spread = random.Random(0)
LOG_UNIFORM = [round(math.exp(spread.uniform(math.log(16), math.log(8000)))) for _ in range(64)]
CASES: dict[str, list[int]] = {
    **{f"{seqs} × {length}": [length] * seqs for length in (256, 1000, 3000) for seqs in (1, 8, 16, 32, 64, 128)},
    "1 × 17": [17],
    "1 × 8000": [8000],
    "1 × 32768": [32_768],
    "256 × 256": [256] * 256,
    "32768 and 63 × 256": [32_768] + [256] * 63,
    "64 of 16 … 8000": LOG_UNIFORM,
    "the same, evenly": [sum(LOG_UNIFORM) // 64] * 64,
    "8 and 56 padding rows": [256] * 8 + [0] * 56,
}
QUICK = "1 × 256", "8 × 256", "64 × 256", "1 × 3000", "64 × 3000", "64 of 16 … 8000"
CHECKED: list[list[int]] = [
    [0, 1, 15, 16, 17, 255, 256, 257, 3000, 0, 8000, 272, 128, 129, 2048, 2049, 2],
    [256] * 64,
    [*LOG_UNIFORM[:40], 0, *LOG_UNIFORM[:20]],
    [17] * 256,
]


@dataclass
class Batch:
    """One token for each sequence of some lengths, its context on pages scattered over `pool`."""

    gpu: Gpu
    entries: Entries
    pool: Any  # [pages, LAYERS, PAGE_ELEMENTS]
    lengths: Sequence[int]

    def __post_init__(self) -> None:
        used = [-(-length // PAGE) for length in self.lengths]
        self.pages = max(1, *used)
        order = torch.randperm(len(self.pool), dtype=torch.int32)[: sum(used)]
        table = torch.zeros(len(used), self.pages, dtype=torch.int32)
        for row, own in zip(table, order.split(used), strict=True):
            row[: len(own)] = own
        last = [max(length - 1, 0) for length in self.lengths]
        slots = [
            int(row[at // PAGE]) * PAGE + at % PAGE if length else -1
            for row, at, length in zip(table, last, self.lengths, strict=True)
        ]
        normal = {"device": "cuda", "dtype": torch.bfloat16}
        self.table, self.slots = table.cuda(), torch.tensor(slots).cuda()
        self.positions = torch.tensor(last).cuda()
        self.seq_lens = torch.tensor(self.lengths, dtype=torch.int32).cuda()
        self.qkv = torch.randn(len(used), WIDTH, **normal)
        self.norms = [1 + torch.randn(DIM, **normal) / 10 for _ in range(2)]
        angles = torch.arange(POSITIONS)[:, None] * 1e6 ** (-torch.arange(0, DIM, 2) / DIM)
        self.cos_sin = torch.cat([angles.cos(), angles.sin()], 1).float().cuda()
        self.out = torch.empty(len(used), SIZES.q_size, **normal)

    def launches(
        self, layer: int, rows: slice = slice(None), entry: str = "norm_append_attention", **more: Any
    ) -> list[KernelLaunch]:
        """Attention of some of the sequences in one layer."""
        seqs = len(self.lengths[rows])
        known = {
            "o": self.out[rows],
            "q": self.qkv[rows],
            "qkv": self.qkv[rows],
            "q_norm": self.norms[0],
            "k_norm": self.norms[1],
            "positions": self.positions[rows],
            "slots": self.slots[rows],
            "cos_sin": self.cos_sin,
            "block_table": self.table[rows],
            "seq_lens": self.seq_lens[rows],
            **more,
        }
        sizes = {"seqs": seqs, "pages": self.pages, "q_heads": Q_HEADS, "kv_heads": KV_HEADS, "head_dim": DIM}
        strides = {"row_stride": WIDTH, "page_stride": PAGE_STRIDE, "eps": EPS, "scale": SCALE}
        addresses = {name: tensor.data_ptr() for name, tensor in known.items()}
        pool = {"pool": self.pool.data_ptr() + 2 * layer * LAYER_STRIDE}
        arguments = {**addresses, **pool, **sizes, **strides}
        taken = {name: arguments[name] for name in INTERFACES[entry]}
        return self.entries.launches(entry, taken, seqs=seqs, tokens=len(known["qkv"]))

    def chunk(self, fresh: Sequence[int]) -> float:
        """Microseconds per layer of attention of the last `fresh` tokens of each sequence, a ragged chunk."""
        starts = torch.tensor([0, *fresh]).cumsum(0).int().cuda()
        rows = torch.randn(sum(fresh), WIDTH, device="cuda", dtype=torch.bfloat16)
        more = {"q": rows, "qkv": rows, "o": torch.empty_like(rows[:, : SIZES.q_size]), "cu_seqlens": starts}
        layers = [self.launches(layer, entry="attention_prefill", **more) for layer in range(LAYERS)]
        return self.gpu.time([launch for layer in layers for launch in layer]) / LAYERS

    def run(self, layer: int, rows: slice = slice(None)) -> Any:
        """The output of some of the sequences, poisoned before."""
        torch.cuda.synchronize()
        self.out[rows].fill_(math.nan)
        torch.cuda.synchronize()
        self.gpu.device.launch(self.gpu.device.prepare(self.launches(layer, rows)), self.gpu.stream)
        self.gpu.stream.synchronize()
        return self.out[rows].clone()

    def rotated(self, heads: Any, norm: Any, position: int) -> Any:
        """Heads [..., DIM] normed and rotated, in float64, rounded as they are stored."""
        x = heads.double()
        x = x * (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt() * norm.double()
        cos, sin = self.cos_sin[position].double().split(DIM // 2)
        low, high = x.split(DIM // 2, -1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1).bfloat16().double()

    def expected(self, layer: int, seq: int) -> Any:
        """A sequence's output in float64, from the pool without its last token."""
        length = self.lengths[seq]
        if length == 0:
            return torch.zeros(SIZES.q_size, dtype=torch.float64, device="cuda")
        q, k, v = self.qkv[seq].view(-1, DIM).split([Q_HEADS, KV_HEADS, KV_HEADS])
        own = self.pool[self.table[seq, : -(-length // PAGE)].long(), layer]
        kept = own.view(-1, 2, KV_HEADS, PAGE, DIM).permute(1, 2, 0, 3, 4).reshape(2, KV_HEADS, -1, DIM)
        kept = kept[:, :, :length].double()
        kept[0, :, -1], kept[1, :, -1] = self.rotated(k, self.norms[1], length - 1), v.double()
        keys, values = kept.repeat_interleave(Q_HEADS // KV_HEADS, 1)
        scores = torch.einsum("hd,htd->ht", self.rotated(q, self.norms[0], length - 1), keys) * SCALE
        return torch.einsum("ht,htd->hd", scores.softmax(-1), values).reshape(-1)

    def check(self) -> dict[str, Any]:
        """Errors of one layer against float64, and rows that differ from those of the same sequence alone."""
        layer = 5
        self.pool[:, layer].fill_(math.nan)
        for seq, length in enumerate(self.lengths):
            for page in range(-(-length // PAGE)):
                valid = min(length - 1 - page * PAGE, PAGE)  # the last token's own slot stays NaN
                at = self.pool[int(self.table[seq, page]), layer].view(2, KV_HEADS, PAGE, DIM)[:, :, :valid]
                at.normal_()
        before = self.pool[:, layer].clone()
        wants = [self.expected(layer, seq) for seq in range(len(self.lengths))]
        out = self.run(layer)
        errors = [float((o.double() - w).norm() / max(w.norm(), 1e-30)) for o, w in zip(out, wants, strict=True)]
        changed = (self.pool[:, layer].view(torch.int16) != before.view(torch.int16)).view(-1, 2, KV_HEADS, PAGE, DIM)
        written = {page * PAGE + slot for page, slot in changed.any(4).any(2).any(1).nonzero().tolist()}
        alone = [self.run(layer, slice(seq, seq + 1))[0] for seq in range(len(self.lengths))]
        differing = [
            seq for seq, row in enumerate(alone) if not torch.equal(row.view(torch.int16), out[seq].view(torch.int16))
        ]
        slots = {int(slot) for slot in self.slots if slot >= 0}
        worst = math.nan if any(map(math.isnan, errors)) else max(errors)
        return {"error": worst, "written": written == slots, "differing": differing}


class Products:
    """The products before and after attention in each layer, on up to eight rows."""

    def __init__(self, gpu: Gpu, entries: Entries) -> None:
        self.gpu, self.entries = gpu, entries
        bf16, f32 = ({"device": "cuda", "dtype": dtype} for dtype in (torch.bfloat16, torch.float32))
        self.weights = [
            (torch.randn(WIDTH, SIZES.hidden, **bf16) / 50, torch.randn(SIZES.hidden, SIZES.q_size, **bf16) / 5000)
            for _ in range(LAYERS)
        ]
        self.x, self.qkv = torch.randn(8, SIZES.hidden, **bf16), torch.empty(8, WIDTH, **bf16)
        self.attended, self.norm = torch.randn(8, SIZES.q_size, **bf16), torch.ones(SIZES.hidden, **bf16)
        self.weighted, self.residual = torch.empty(8, SIZES.hidden, **bf16), torch.zeros(8, SIZES.hidden, **f32)
        self.squares = torch.ones(8, 1024, **f32)

    def launches(self, layer: int, rows: int) -> tuple[list[KernelLaunch], list[KernelLaunch]]:
        """Those before attention, and those after it."""
        into, out_of = self.weights[layer]
        qkv = {"y": self.qkv, "weighted": self.x, "squares": self.squares, "w": into}
        added = {"weighted": self.weighted, "squares": self.squares, "residual": self.residual}
        added |= {"x": self.attended, "w": out_of, "weight": self.norm}
        before = {name: tensor.data_ptr() for name, tensor in qkv.items()}
        after = {name: tensor.data_ptr() for name, tensor in added.items()}
        before |= {"m": rows, "n": WIDTH, "k": SIZES.hidden, "eps": EPS}
        after |= {"m": rows, "n": SIZES.hidden, "k": SIZES.q_size}
        launch = self.entries.launches
        return launch("rms_matmul", before, tokens=rows), launch("output_matmul_add", after, tokens=rows)

    def time(self, batch: Batch | None, rows: int) -> float:
        """Microseconds of all layers, with attention or without."""
        launches = []
        for layer in range(LAYERS):
            before, after = self.launches(layer, min(rows, 8))
            launches += [*before, *(batch.launches(layer) if batch else ()), *after]
        return self.gpu.time(launches)


CHUNKS: dict[str, tuple[list[int], list[int]]] = {
    "512 of 512": ([512], [512]),
    "512 of 4096": ([4096], [512]),
    "256 of 256": ([256], [256]),
    "63 × 1 of 1000": ([1000] * 63, [1] * 63),
    "256 of 256, 63 × 1 of 1000": ([1000] * 30 + [256] + [1000] * 33, [1] * 30 + [256] + [1] * 33),
    "256 of 256, 63 × 1 of 16 … 8000": ([256, *LOG_UNIFORM[1:]], [256] + [1] * 63),
}
"""Ragged chunks: lengths of the sequences, and how many of their tokens are new."""


def chunked(gpu: Gpu, entries: Entries, pool: Any) -> dict[str, float]:
    """Milliseconds of attention of all layers for each chunk."""
    found = {}
    for name, (lengths, fresh) in CHUNKS.items():
        found[name] = round(Batch(gpu, entries, pool, lengths).chunk(fresh) * LAYERS / 1e3, 3)
        print(f"{name:34} {found[name]:8.3f} ms", flush=True)
    return found


def measured(gpu: Gpu, entries: Entries, pool: Any, names: Sequence[str]) -> dict[str, Any]:
    """Each case: milliseconds that attention adds to a step, and its floor."""
    products, rate, found = Products(gpu, entries), gpu.device.read_bandwidth(), {}
    alone = {rows: products.time(None, rows) for rows in (1, 8)}
    for name in names:
        lengths = CASES[name]
        batch = Batch(gpu, entries, pool, lengths)
        added = products.time(batch, len(lengths)) - alone[1 if len(lengths) == 1 else 8]
        floor = sum(lengths) * TOKEN_BYTES * LAYERS / rate * 1e6
        found[name] = {"ms": round(added / 1e3, 3), "floor_ms": round(floor / 1e3, 3)}
        print(f"{name:24} {added / 1e3:8.3f} ms, floor {floor / 1e3:7.3f}", flush=True)
    return {"read_TB_per_s": round(rate / 1e12, 2), "products_ms": alone, "cases": found}


def checked(gpu: Gpu, entries: Entries) -> list[dict[str, Any]]:
    """Every batch of CHECKED; prints what is not sound."""
    pool, found = torch.zeros(6500, LAYERS, PAGE_ELEMENTS, device="cuda", dtype=torch.bfloat16), []
    for lengths in CHECKED:
        result = Batch(gpu, entries, pool, lengths).check()
        sound = result["error"] <= SOUND and result["written"] and not result["differing"]
        print("sound" if sound else "WRONG", result, flush=True)
        found.append({**result, "sequences": len(lengths), "sound": sound})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only a few of the cases")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    gpu = Gpu(open_device("cuda"))
    plan = CudaPlan(gpu.device.target, SIZES)
    entries = Entries(gpu, plan, compile_cuda_modules(plan))
    results = {**about(["python", *sys.argv]), "checked": checked(gpu, entries)}
    most = max(sum(-(-length // PAGE) for length in lengths) for lengths in CASES.values())
    pool = torch.empty(most, LAYERS, PAGE_ELEMENTS, device="cuda", dtype=torch.bfloat16).normal_()
    results |= measured(gpu, entries, pool, QUICK if options.quick else tuple(CASES))
    results["chunks"] = chunked(gpu, entries, pool)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
