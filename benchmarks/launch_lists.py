"""What a call with new symbol values costs before it runs, as JSON on stdout: its launch list, its graph, its inputs.

    python benchmarks/launch_lists.py sm_90a > benchmarks/results/h200-launch-lists.json

Builds a model of 36 layers, whose matrices are small, for a target, and loads it. `lists` are made for every pair of a
number of tokens and of sequences (`prefill`) or of sequences and pages (`decode`): `first` are those of a new number of
tokens, for which built-in operators choose their algorithms too. `graphs` are recorded from lists that exist. `ms` is
the median of one, `host_kib` and `device_kib` the mean of its memory. `write_us` is the time of one write of an input.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from about import about

import kern
from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.config import PRESETS
from kern.runtime.executable import Executable

LAYERS, SEQUENCES, CHUNK, PAGES = 36, 8, 512, 32
TOKENS = (16, 32, 64, 128, 256, 512)
PAGE_BYTES = 4096

Call = tuple[str, dict[str, int]]


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def each(executable: Executable, make: Callable[[Call], object], calls: Sequence[Call]) -> dict[str, float]:
    """Time and memory of making one, with what was made still there."""
    gc.collect()
    host, free, times, made = resident(), executable.device.free_memory(), [], []
    for call in calls:
        start = perf_counter()
        made.append(make(call))
        times.append(perf_counter() - start)
    executable.synchronize()
    gc.collect()
    found = {
        "count": len(calls),
        "ms": median(times) * 1e3,
        "most_ms": max(times) * 1e3,
        "host_kib": (resident() - host) / len(calls) / 1024,
    }
    if executable.device.name != "host":
        found["device_kib"] = (free - executable.device.free_memory()) / len(calls) / 1024
    return found


def write_us(executable: Executable, name: str, array: np.ndarray, values: dict[str, int], rows: int) -> float:
    """Microseconds of Python for one write of a row, the least of five rounds of 500."""
    rounds = []
    for _ in range(5):
        executable.synchronize()
        start = perf_counter()
        for turn in range(500):
            executable.write(name, array, values, at=turn % rows)
        rounds.append((perf_counter() - start) / 500 * 1e6)
    return min(rounds)


def call(program: str, tokens: int, seqs: int, pages: int = PAGES) -> Call:
    """A program and its values."""
    return program, {"tokens": tokens, "seqs": seqs, "pages": pages}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", nargs="?", default="host")
    target = parser.parse_args().target
    PRESETS["qwen3"]["deep"] = replace(PRESETS["qwen3"]["tiny"], layers=LAYERS)
    first = [call("prefill", tokens, 1) for tokens in TOKENS]
    known = [call("prefill", tokens, seqs) for tokens in TOKENS for seqs in range(2, SEQUENCES + 1)]
    decode = [call("decode", seqs, seqs, pages) for seqs in range(1, SEQUENCES + 1) for pages in (8, 16, 24, PAGES)]
    with tempfile.TemporaryDirectory() as folder:
        options = BuildOptions(
            "qwen3", random=True, seed=7, config="deep", target=target, sequences=SEQUENCES, chunk=CHUNK
        )
        build(options, Path(folder, "deep"))
        with kern.load(Path(folder, "deep"), capacity=PAGES * 16, sequences=SEQUENCES) as executable:
            lists = executable._launches
            found = {
                "first prefill": each(executable, lambda one: lists.prepared(*one), first),
                "prefill": each(executable, lambda one: lists.prepared(*one), known),
                "decode": each(executable, lambda one: lists.prepared(*one), decode),
            }
            launches = {name: len(lists.prepared(*one)) for name, one in (("prefill", first[0]), ("decode", decode[0]))}
            graphs = {
                name: each(executable, lambda one: executable.graph([one]), calls)
                for name, calls in (("prefill", first + known), ("decode", decode))
            }
            values = call("decode", SEQUENCES, SEQUENCES)[1]
            row, one = np.zeros((1, PAGES), np.int32), np.zeros(1, np.int64)
            writes = {
                "a row of block_table": write_us(executable, "block_table", row, values, SEQUENCES),
                "one of positions": write_us(executable, "positions", one, values, SEQUENCES),
            }
    result = {"layers": LAYERS, "launches": launches, "lists": found, "graphs": graphs, "write_us": writes}
    print(json.dumps({**about(["python", *sys.argv]), **result}, indent=1))


if __name__ == "__main__":
    main()
