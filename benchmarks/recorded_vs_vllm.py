"""Qwen3-4B on vLLM's own kernels under kern, beside vLLM itself: whole requests, and the time of each kernel of a step.

    python benchmarks/recorded_vs_vllm.py RECORDED CONFIG_DIR [--own ARTIFACT] [--tokens 256] [--prompts 16,709]

RECORDED is a folder built by `kern build qwen3 --random --config qwen3-4b --capture DUMP`, where DUMP records the same
vLLM; ARTIFACT is the same on our own kernels. CONFIG_DIR is as for vs_vllm.py, which this extends: the engines take
turns in one run, vLLM with TRITON_ATTN, graphs and torch.compile.

The table of kernels comes after that, each engine alone: CUPTI's times through torch's profiler, the same ruler for
all, of a decode step (a request for 1 + N tokens less one for 1, over N) and of the first token. vLLM is there twice,
as it runs by default and eagerly, which is what was recorded. Between kernels is what a step takes as the caller sees
it, less the time that kernels run. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vs_vllm
from vs_vllm import VLLM_ENVIRONMENT, Engine, Request, commit, kern_engine, measure, nvidia_smi, vllm_engine

BACKEND = "TRITON_ATTN"
STEPS = 32
"""Decode steps that a step's times are the mean of."""
PARTS = {
    "add and norm": "fused_add_rms_norm",
    "head norms": r"rms_norm_kernel<c10::BFloat16, \d+, 3|rms_norm_kernel\w*ELi\d+ELi3E",
    "first norm": "rms_norm_kernel",
    "rotation": "rotary_embedding",
    "cache write": "reshape_and_cache",
    "attention": "kernel_unified_attention|append_attention|attention_prefill",
    "reduction of attention": "reduce_segments|attention_combine",
    "activation": "act_and_mul|silu_mul",
    "products": "nvjet|cublas|gemm|gemv|splitK|cutlass|_matmul|norm_gate_up",
    "fused by torch.compile": "^triton_",
    "copies": "^Memcpy|^Memset",
}
"""The parts of a step by what kernels are called; the first that fits."""

Times = dict[str, tuple[float, float]]
"""Launches and microseconds of each kernel."""


def engine(kind: str, argument: str) -> Request:
    """`kern` with a folder, `vllm` or `vllm-eager` with a config."""
    if kind == "kern":
        return kern_engine(argument)
    return vllm_engine(argument, BACKEND, eager=kind == "vllm-eager")


def kernel_times(request: Request, ids: Sequence[int], tokens: int) -> Times:
    """What runs on the GPU during one request, after another like it."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    request(ids, tokens)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        request(ids, tokens)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        found.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    times: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            times[event["name"]][0] += 1
            times[event["name"]][1] += event["dur"]
    return {name: (launches, taken) for name, (launches, taken) in times.items()}


def report_times(kind: str, argument: str, prompt: int) -> None:
    """Print the times of a decode step and of the first token, as JSON on what was stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # engines print what they like
    request, ids = engine(kind, argument), vs_vllm.prompt_ids(prompt)
    first, more = (kernel_times(request, ids, tokens) for tokens in (1, 1 + STEPS))
    step = {
        name: tuple((a - b) / STEPS for a, b in zip(found, first.get(name, (0, 0.0)), strict=True))
        for name, found in more.items()
    }
    print(json.dumps({"decode step": step, "first token": first}), file=answers, flush=True)


def table(times: dict[str, Times]) -> dict[str, dict[str, dict[str, float]]]:
    """Part → engine → launches and microseconds; the sums last."""
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for name, found in times.items():
        for kernel, (launches, taken) in found.items():
            part = next((part for part, words in PARTS.items() if re.search(words, kernel)), "the rest")
            for row in (part, "all"):
                cell = rows.setdefault(row, {}).setdefault(name, {"launches": 0.0, "us": 0.0})
                cell["launches"] += launches
                cell["us"] += taken
    return {part: rows[part] for part in (*PARTS, "the rest", "all") if part in rows}


def profiled(engines: dict[str, tuple[str, str]], prompt: int, logs: Path) -> dict[str, Any]:
    """Each engine in a process of its own, one after another."""
    found: dict[str, dict[str, Times]] = {}
    for name, arguments in engines.items():
        command = [sys.executable, __file__, "--times", *arguments, str(prompt)]
        with (logs / f"times-{name.replace(' ', '-')}.log").open("w") as log:
            environment = {**os.environ, **VLLM_ENVIRONMENT}
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, check=False)
        if done.returncode == 0:
            found[name] = json.loads(done.stdout)
    return {
        "steps": STEPS,
        "absent": [name for name in engines if name not in found],
        **{
            what: {
                "parts": table({name: times[what] for name, times in found.items()}),
                "kernels": {
                    name: {
                        kernel: {"launches": launches, "us": taken}
                        for kernel, (launches, taken) in sorted(times[what].items(), key=lambda each: -each[1][1])
                    }
                    for name, times in found.items()
                },
            }
            for what in ("decode step", "first token")
        },
    }


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Whole requests, then kernels."""
    options.logs.mkdir(parents=True, exist_ok=True)
    served = {"kern on vLLM's kernels": ["kern", options.recorded]}
    if options.own is not None:
        served["kern"] = ["kern", options.own]
    served[f"vllm {BACKEND}"] = [BACKEND, options.config]
    started: list[Engine] = []
    try:
        # One after another: vLLM takes what others allocate meanwhile for its own when it sizes its cache.
        for name, arguments in served.items():
            started.append(Engine(name, arguments, options.logs / f"{re.sub(r'[^a-z]+', '-', name.lower())}.log"))
            if not started[-1].wait():
                raise SystemExit(f"{name} did not come up: see {options.logs}")
        results = {n: measure(started, n, options.tokens, options.rounds) for n in options.prompts}
    finally:
        for each in started:
            each.stop()
    alone = {name: ("kern", arguments[1]) for name, arguments in served.items() if arguments[0] == "kern"}
    alone |= {f"vllm {BACKEND}": ("vllm", options.config), f"vllm {BACKEND}, eager": ("vllm-eager", options.config)}
    tables = {n: profiled(alone, n, options.logs) for n in options.prompts}
    return {
        "machine": platform.platform(),
        "gpu": nvidia_smi(),
        "commit": commit(),
        "tokens": options.tokens,
        "rounds": options.rounds,
        "results": results,
        "us_between_kernels_of_a_step": {
            n: {
                name: found["decode_ms_per_token"] * 1e3 - tables[n]["decode step"]["parts"]["all"][name]["us"]
                for name, found in results[n].items()
                if name not in tables[n]["absent"]
            }
            for n in options.prompts
        },
        "kernels": tables,
    }


def main() -> None:
    """Measure and print, or report the kernels of one engine."""
    if sys.argv[1:2] == ["--times"]:
        kind, argument, prompt = sys.argv[2:5]
        report_times(kind, argument, int(prompt))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recorded")
    parser.add_argument("config")
    parser.add_argument("--own")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prompts", type=lambda text: [int(n) for n in text.split(",")], default=[16, 709])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--logs", type=Path, default=Path("build/recorded_vs_vllm"))
    print(json.dumps(compare(parser.parse_args()), indent=1))


if __name__ == "__main__":
    main()
