"""How fast the CUDA kernels of a Qwen3-4B step are, for several ways to split them; checked before they are timed.

    python benchmarks/cuda_kernels.py [--quick] [--json benchmarks/results/cuda_kernels.json]

Random weights of the real shape, a graph of all launches of a decode step, each chained to the one before by
programmatic dependent launch. Reported: for each tuning the whole step, with a context of 272 tokens, and each kernel
alone; for the fastest, eight sequences, the step without each kernel, longer contexts; and the kernels of a prefill.
A graph's figure is the median of several times, each of ten replays. Needs PyTorch, for memory and references.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from about import about
from qwen3_step import HEAD_DIM, KV_HEADS, LAYERS, PRODUCTS, SIZES, STEP_BYTES, Model, prefill
from step_checks import check, check_prefill
from torch_gpu import Gpu, Launch

from kern.kernels.compile_cuda import compile_cuda_modules
from kern.kernels.cuda_plan import CudaPlan, Tuning
from kern.kernels.cuda_sizes import Sizes

BASE = Tuning()
VARIED: list[dict[str, int]] = [
    {"ring_kb": 163, "slot_kb": 20},
    {"ring_kb": 163, "slot_kb": 40},
    {"ring_kb": 200, "slot_kb": 20},
    {"ring_kb": 200, "slot_kb": 40},
]
"""What each tuning of the sweep changes from the default."""
PARTS = [4, 8, 16, 32]
SOUND = 0.005
"""The largest allowed error of a kernel, relative to the norm of its output; rounding to bf16 gives 0.002."""


def report(name: str, microseconds: float, size: float) -> None:
    print(f"{name:58} {microseconds:9.1f} µs  {size / microseconds / 1e6:6.3f} TB/s", flush=True)


def differing_logits(model: Model, functions: Mapping[str, Any], launches: Sequence[Launch]) -> int:
    """How many logits of a few steps differ between overlapping kernels and the same ones run one at a time."""
    torch, logits = model.gpu.torch, []
    apart = [replace(launch, dependent=False) for launch in launches]
    for chain in (apart, launches):
        model.at(272)
        model.gpu.time(functions, chain, repeats=0, replays=3)
        logits.append(model.logits[0].clone())
    return int((logits[0].view(torch.int32) != logits[1].view(torch.int32)).sum())


def sweep(model: Model, images: Mapping[Tuning, Mapping[str, bytes]], target: str) -> list[dict[str, Any]]:
    """For each tuning the time of a step, of its products without the rest, and of each kernel alone; fastest first.

    `sound`: overlapping kernels give the same logits as when run one at a time, and these are correct.
    """
    results = []
    for tuning, modules in images.items():
        plan, functions = CudaPlan(target, SIZES, tuning), model.gpu.functions(modules)
        step = model.step(plan)
        errors, differing = check(model, functions, plan, 1, 272), differing_logits(model, functions, step)
        sound = differing == 0 and all(value <= SOUND for value in errors.values())
        model.at(272)
        microseconds = model.gpu.time(functions, step)
        products = model.gpu.time(functions, [launch for launch in step if launch.kind in PRODUCTS])
        print(f"\n{tuning}" if sound else f"\n{tuning} WRONG: {differing} logits differ, errors {errors}")
        report("step", microseconds, STEP_BYTES)
        report("products without the rest", products, STEP_BYTES)
        result = {"us": microseconds, "products": products, "alone": alone(model, functions, plan), "sound": sound}
        results.append({"tuning": asdict(tuning), "errors": errors, **result})
    return sorted(results, key=lambda result: result["us"])


def alone(model: Model, functions: Mapping[str, Any], plan: CudaPlan, seqs: int = 1) -> dict[str, float]:
    """The time of one launch of each kind of kernel alone."""
    found = {}
    step = model.step(plan, seqs)
    for kind in dict.fromkeys(launch.kind for launch in step):
        model.at(272)
        own = [launch for launch in step if launch.kind == kind]
        found[kind] = model.gpu.time(functions, own) / len(own)
        report(f"{kind} alone, each of {len(own)}, {seqs} sequences", found[kind], PRODUCTS.get(kind, 0))
    return found


def details(model: Model, functions: Mapping[str, Any], plan: CudaPlan) -> dict[str, Any]:
    """The step without each kernel; prefill."""
    time = model.gpu.time
    model.at(272)
    step = model.step(plan)
    found: dict[str, Any] = {"without": {}}
    for kind in dict.fromkeys(launch.kind for launch in step):
        model.at(272)
        found["without"][kind] = time(functions, [launch for launch in step if launch.kind != kind])
        report(f"step without {kind}", found["without"][kind], 0)
    for chunks in ([512], [512, 197]):
        for kind, launches in prefill(model, plan, chunks).items():
            found[f"prefill {kind} {chunks}"] = time(functions, launches)
            report(f"prefill {chunks} {kind}, a layer", found[f"prefill {kind} {chunks}"], 0)
    return found


def contexts(model: Model, images: Mapping[Tuning, Mapping[str, bytes]], target: str) -> dict[str, float]:
    """A step's time for short and long contexts, for each number of parts of the context."""
    found = {}
    for length in (17, 709, 4096, 16_384):
        for tuning, modules in images.items():
            model.at(length)
            step = model.step(CudaPlan(target, SIZES, tuning))
            name = f"context {length}, {tuning.parts} parts"
            found[name] = model.gpu.time(model.gpu.functions(modules), step, repeats=3)
            report(name, found[name], STEP_BYTES + length * LAYERS * 4 * KV_HEADS * HEAD_DIM)
    return found


def measured(pool: ProcessPoolExecutor, target: str, quick: bool) -> dict[str, Any]:
    """Everything: the sweep, then details of the fastest correct tuning."""

    def images_of(tunings: Sequence[Tuning], sizes: Sizes = SIZES) -> dict[Tuning, Mapping[str, bytes]]:
        plans = [CudaPlan(target, sizes, tuning) for tuning in tunings]
        return dict(zip(tunings, pool.map(compile_cuda_modules, plans), strict=True))

    images = images_of([replace(BASE, **varied) for varied in VARIED])
    model = Model(Gpu())
    results: dict[str, Any] = {**about(["python", *sys.argv]), "bytes": STEP_BYTES}
    results["sweep"] = sweep(model, images, target)
    best = next(Tuning(**result["tuning"]) for result in results["sweep"] if result["sound"])
    print(f"\nbest: {best}")
    sizes = replace(SIZES, sequences=8)
    eight, of_eight = CudaPlan(target, sizes, best), model.gpu.functions(images_of([best], sizes)[best])
    plan, functions = CudaPlan(target, SIZES, best), model.gpu.functions(images[best])
    results["errors"] = check_prefill(model, functions, plan)
    for seqs, length in ((3, 33), (8, 1000)):
        results["errors"][f"{seqs}"] = check(model, of_eight, eight, seqs, length)
    print(json.dumps(results["errors"]))
    model.at(272)
    results["eight"] = model.gpu.time(of_eight, model.step(eight, 8))
    report("step, 8 sequences", results["eight"], STEP_BYTES)
    results["eight alone"] = alone(model, of_eight, eight, 8)
    if not quick:
        results["best"] = details(model, functions, plan)
        parts = images_of([replace(best, parts=parts) for parts in PARTS])
        results["contexts"] = contexts(model, parts, target)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="leave out prefill and long contexts")
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        results = measured(pool, options.target, options.quick)
    if options.json is not None:
        temporary = options.json.with_suffix(".partial")
        temporary.write_text(json.dumps(results, indent=1) + "\n")
        temporary.replace(options.json)


if __name__ == "__main__":
    main()
