"""The candidates of cublasLt's heuristic for a model's products, as JSON on stdout: time, configuration, rounding.

    python benchmarks/cuda_products.py [--candidates 8] > benchmarks/results/cuda_products.json

Each candidate is timed as the device times it when it chooses (weights from memory, median, microseconds). `sums`
says what a product of whole numbers added to an old C in bfloat16 shows of an algorithm's rounding: `once` where
each element is the exact sum rounded, `twice` where the product was rounded first, `either` where both would give
what was found, else the largest error beyond the exact sum, as a share of |product| + |sum|. `gain` holds the time of
the heuristic's first proposal against that of the algorithm that the device chooses by time at first use: both are
timed again, in turns, after the choice. `ratio` above 1.05 over a model's layers is what keeps the choice by time.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import ml_dtypes
import numpy as np
from about import about

from kern.device.cuda import cublaslt, matmul_autotune
from kern.device.cuda.device import CudaDevice
from kern.device.cuda.matmul_autotune import Algorithm, Problem
from kern.device.cuda.matmul_cache import Shape
from kern.device.cuda.operators import Products

BF16 = ml_dtypes.bfloat16
LAYERS = ((6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728))
SUMMED = [(m, n, k) for m in (1, 2, 17, 64, 512) for n, k in ((576, 1536), (2560, 4096), (129, 1536))]

# cublasLtMatmulAlgoConfigAttributes_t
CONFIGURATION = {"id": 0, "tile": 1, "split_k": 2, "reduction": 3, "swizzle": 4, "stages": 6, "cluster": 8}


def configuration(algorithm: Algorithm) -> dict[str, int]:
    """An algorithm's own attributes."""
    get = cublaslt._library()["cublasLtMatmulAlgoConfigGetAttribute"]
    found, value, written = {}, ctypes.c_int(0), ctypes.c_size_t(0)
    for name, attribute in CONFIGURATION.items():
        for size in (4, 2):
            value.value = 0
            arguments = (ctypes.byref(algorithm), attribute, ctypes.byref(value), ctypes.c_size_t(size))
            if not get(*arguments, ctypes.byref(written)):
                found[name] = value.value
                break
    return found


@contextmanager
def problem_of(products: Products, shape: Shape) -> Iterator[Problem]:
    """The descriptors of a shape, the context current."""
    with products._context:
        yield products._problem(shape)


def timed(products: Products, address: int, shape: Shape, most: int) -> list[dict[str, Any]]:
    """Each candidate's time and configuration, in the heuristic's order."""
    with problem_of(products, shape) as problem:
        context, found = products._context, []
        flush = 2 * context.attribute("L2_CACHE_SIZE")
        for candidate in matmul_autotune.candidates(problem, most, str(shape)):
            with matmul_autotune._scratch(context, problem, flush) as scratch:
                enqueue = scratch.call(problem, address, candidate)
                seconds = matmul_autotune._seconds(context, scratch, enqueue, 9, str(shape))
            found.append({"us": seconds * 1e6, **configuration(candidate)})
        return found


def gained(products: Products, address: int, shape: Shape, turns: int = 7) -> dict[str, float]:
    """Microseconds of the heuristic's first proposal and of the algorithm chosen by time, and their ratio."""
    with problem_of(products, shape) as problem:
        context, times = products._context, ([], [])
        first = matmul_autotune.candidates(problem, 1, str(shape))[0]
        chosen = matmul_autotune.fastest(context, problem, address, matmul_autotune.QUICK, str(shape))
        with matmul_autotune._scratch(context, problem, 2 * context.attribute("L2_CACHE_SIZE")) as scratch:
            calls = [scratch.call(problem, address, each) for each in (first, chosen)]
            for _ in range(turns):
                for call, each in zip(calls, times, strict=True):
                    each.append(matmul_autotune._seconds(context, scratch, call, 9, str(shape)))
    heuristic, timed_best = (median(each) * 1e6 for each in times)
    return {"heuristic_us": heuristic, "chosen_us": timed_best, "ratio": heuristic / timed_best}


def layer_gains(products: Products, address: int) -> dict[str, Any]:
    """The gain of each product of a layer, and of the whole layer, by the number of tokens."""
    gains: dict[str, Any] = {}
    for m in (1, 2, 16, 64, 128, 512):
        each = {
            f"n{n}_k{k}": gained(products, address, Shape.of("cublaslt_bf16_tn", m, n, k, 0, 0, 0)) for n, k in LAYERS
        }
        heuristic, chosen = (sum(one[key] for one in each.values()) for key in ("heuristic_us", "chosen_us"))
        gains[f"m{m}"] = {**each, "layer": {"ratio": heuristic / chosen}}
    return gains


def summed(device: CudaDevice, products: Products, m: int, n: int, k: int, most: int) -> list[dict[str, Any]]:
    """How each candidate rounds a sum in bfloat16."""
    random = np.random.default_rng(m * n + k)
    c, a, w = (random.integers(-4, 5, each).astype(BF16) for each in ((m, n), (m, k), (n, k)))
    product = a.astype(np.float64) @ w.astype(np.float64).T
    exact = product + c.astype(np.float64)
    once = exact.astype(BF16).astype(np.float64)
    twice = (product.astype(BF16).astype(np.float64) + c.astype(np.float64)).astype(BF16).astype(np.float64)
    stream, memories = device.stream(), [device.alloc(max(each.nbytes, 1)) for each in (c, a, w)]
    for memory, array in zip(memories[1:], (a, w), strict=True):
        device.write(memory.address, array.reshape(-1).view(np.uint8).data, stream)
    found = []
    shape = Shape.of("cublaslt_bf16_tn_acc", m, n, k, 0, 0, 0)
    with problem_of(products, shape) as problem:
        for candidate in matmul_autotune.candidates(problem, most, str(shape)):
            device.write(memories[0].address, c.reshape(-1).view(np.uint8).data, stream)
            bind = problem.with_algorithm(candidate, products._workspace.address)
            status = bind(*(memories[each].address for each in (2, 1, 0)))(ctypes.c_void_p(stream.number))
            result = np.frombuffer(device.read(memories[0].address, c.nbytes, stream).wait(), BF16).reshape(m, n)
            said = (
                cublaslt.described(status) if status else sums(result.astype(np.float64), once, twice, exact, product)
            )
            found.append({"sums": said, **configuration(candidate)})
    stream.close()
    for memory in memories:
        memory.free()
    return found


def sums(result: Any, once: Any, twice: Any, exact: Any, product: Any) -> str | float:
    """Which rounding explains a result."""
    explained = [name for name, each in (("once", once), ("twice", twice)) if (result == each).all()]
    if len(explained) == 2:
        return "either"
    return explained[0] if explained else float((abs(result - exact) / (abs(product) + abs(exact) + 1e-9)).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=8)
    most = parser.parse_args().candidates
    device = CudaDevice(0)
    products = Products(device._context, tune=False)
    weights, stream = device.alloc(128 << 20), device.stream()
    block = np.random.default_rng(0).standard_normal(8 << 20).astype(BF16).view(np.uint8)
    for start in range(0, weights.size, block.nbytes):  # zeros would be multiplied faster
        device.write(weights.address + start, block.data, stream)
    stream.synchronize()
    name = "cublaslt_bf16_tn"
    times = {
        f"m{m}_n{n}_k{k}": timed(products, weights.address, Shape.of(name, m, n, k, 0, 0, 0), most)
        for m in (1, 16, 128, 512)
        for n, k in LAYERS
    }
    gain = layer_gains(products, weights.address)
    rounding = {f"m{m}_n{n}_k{k}": summed(device, products, m, n, k, most) for m, n, k in SUMMED}
    print(json.dumps({**about(["python", *sys.argv]), "gain": gain, "times": times, "sums": rounding}, indent=1))
    products.close()
    weights.free()
    device.close()


if __name__ == "__main__":
    main()
