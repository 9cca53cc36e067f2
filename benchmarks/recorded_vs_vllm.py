"""Qwen3-4B on vLLM's kernels under kern, compared with vLLM itself: whole requests, and each kernel of a step.

    python benchmarks/recorded_vs_vllm.py RECORDED CONFIG_DIR [--own ARTIFACT] [--tokens 256] [--prompts 16,709]

RECORDED is a folder built by `kern build qwen3 --random --config qwen3-4b --capture DUMP`, where DUMP records the same
vLLM; ARTIFACT is the same on our own kernels. CONFIG_DIR is as for vs_vllm.py, which this extends: the engines take
turns in one run. vLLM, with TRITON_ATTN, runs three times: with its defaults; with graphs but without torch.compile,
so that it runs the same kernels that were recorded; and eagerly, as it was recorded.

The table of kernels follows, from the same processes: CUPTI's times through torch's profiler, measured alike for all,
of a decode step (a request for 1 + N tokens minus one for 1, divided by N) and of the first token. The time between
kernels is the step's time as the caller sees it, minus the time that kernels run. Overlapping kernels are counted
separately, so with overlapping launches it is less than the time in which none runs, and may be negative. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from about import about
from vs_vllm import TASKS, Engine, Request, kern_engine, measure, prompt_ids, serve, vllm_engine

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
"""The parts of a step by kernel name; the first match counts."""

Times = dict[str, tuple[float, float]]
"""Launches and microseconds of each kernel."""


VLLM: dict[str, dict[str, Any]] = {
    "vllm": {},
    "vllm without torch.compile": {"compilation_config": {"mode": "NONE", "cudagraph_mode": "FULL_DECODE_ONLY"}},
    "vllm eager": {"enforce_eager": True},
}
"""The engines that are vLLM, and their options."""


def start(name: str, argument: str) -> Request:
    """An engine of VLLM with a config, any other with an artifact's folder."""
    return vllm_engine(argument, BACKEND, **VLLM[name]) if name in VLLM else kern_engine(argument)


def kernel_times(request: Request, ids: Sequence[int], tokens: int) -> Times:
    """What runs on the GPU during one request, after an identical one."""
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


def step_times(first: Times, more: Times) -> Times:
    """The same for a decode step, from a request for one token and one for STEPS more."""
    return {
        name: (
            (launches - first.get(name, (0, 0.0))[0]) / STEPS,
            (taken - first.get(name, (0, 0.0))[1]) / STEPS,
        )
        for name, (launches, taken) in more.items()
    }


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


def profiled(engines: Sequence[Engine], prompt: int) -> dict[str, Any]:
    """The kernels of each engine's step and first token, by part and one by one."""
    ids, steps, firsts = prompt_ids(prompt), {}, {}
    for each in engines:
        firsts[each.name] = each.ask("kernels", ids, 1)
        steps[each.name] = step_times(firsts[each.name], each.ask("kernels", ids, 1 + STEPS))
    return {
        what: {
            "parts": table(times),
            "kernels": {
                name: {
                    kernel: {"launches": launches, "us": taken}
                    for kernel, (launches, taken) in sorted(found.items(), key=lambda one: -one[1][1])
                }
                for name, found in times.items()
            },
        }
        for what, times in (("decode step", steps), ("first token", firsts))
    }


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Whole requests, then kernels."""
    options.logs.mkdir(parents=True, exist_ok=True)
    folders = {"kern on vllm's kernels": options.recorded} | ({"kern": options.own} if options.own else {})
    started: list[Engine] = []
    try:
        # One after another: vLLM counts memory that others allocate meanwhile as its own when it sizes its cache.
        for name, argument in {**folders, **dict.fromkeys(VLLM, options.config)}.items():
            log = options.logs / f"{re.sub(r'[^a-z]+', '-', name)}.log"
            started.append(Engine(name, [name, argument], log, __file__))
            if not started[-1].wait():
                raise SystemExit(f"{name} did not come up: see {log}")
        results = {n: measure(started, n, options.tokens, options.rounds) for n in options.prompts}
        kernels = {n: profiled(started, n) for n in options.prompts}
    finally:
        for each in started:
            each.stop()
    return {
        **about(["python", *sys.argv]),
        "tokens": options.tokens,
        "rounds": options.rounds,
        "results": results,
        "us_between_kernels_of_a_step": {
            n: {
                name: found["decode_ms_per_token"] * 1e3 - kernels[n]["decode step"]["parts"]["all"][name]["us"]
                for name, found in results[n].items()
            }
            for n in options.prompts
        },
        "steps_profiled": STEPS,
        "kernels": kernels,
    }


def main() -> None:
    """Measure and print, or serve one engine."""
    if sys.argv[1:2] == ["--serve"]:
        serve(partial(start, *sys.argv[2:4]), {**TASKS, "kernels": kernel_times})
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
