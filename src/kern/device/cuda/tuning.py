"""Choosing cublasLt's algorithm for a shape: its heuristic's candidates, timed on scratch memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median
from typing import Any, Final

import numpy as np
from cuda.bindings import driver
from nvmath.bindings import cublasLt

from kern.device.cuda.algorithms import ALGORITHM_BYTES, WORKSPACE_BYTES
from kern.device.cuda.context import Context, CudaError
from kern.device.cuda.memory import CudaMemory
from kern.device.cuda.stream import CudaStream, Event

_CANDIDATES: Final = 8
_RUNS: Final = 5
_ALIGNMENT: Final = 256

_RESULT: Final = np.dtype(
    [("algorithm", f"V{ALGORITHM_BYTES}"), ("workspace", "<u8"), ("state", "<i4"), ("waves", "<f4"), ("_", "<i4", 4)]
)
"""cublasLtMatmulHeuristicResult_t; `state` is 0 for a result that can be used."""

Algorithm = ctypes.Array[Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """A product but for the place of its result: cublasLt's descriptors, with A and B in cublasLt's order."""

    handle: int
    description: int
    layouts: tuple[int, int, int]
    operands: tuple[int, int]
    scalars: tuple[int, int]
    alignments: tuple[int, int, int]
    result_bytes: int

    def call(self, result: int, algorithm: Algorithm, workspace: int) -> Callable[[int], None]:
        """What gives the product to a stream, by handle, and raises cuBLASLtError. `algorithm` must outlive it."""
        (a, b), (la, lb, lc), (alpha, beta) = self.operands, self.layouts, self.scalars
        return partial(
            cublasLt.matmul,
            self.handle, self.description, alpha, a, la, b, lb, beta, result, lc, result, lc,
            ctypes.addressof(algorithm), workspace, WORKSPACE_BYTES,
        )  # fmt: skip


def is_usable(problem: Problem, algorithm: Algorithm) -> bool:
    """Whether cublasLt accepts an algorithm for this problem, within the workspace."""
    result = np.zeros(1, _RESULT)
    a, b, c = problem.layouts
    try:
        cublasLt.matmul_algo_check(
            problem.handle, problem.description, a, b, c, c, ctypes.addressof(algorithm), result.ctypes.data
        )
    except cublasLt.cuBLASLtError:
        return False
    return bool(result["state"][0] == 0 and result["workspace"][0] <= WORKSPACE_BYTES)


def warm_up(context: Context, problem: Problem, algorithm: Algorithm) -> None:
    """Run once on scratch, so that its kernel is loaded before any capture. The context must be current."""
    with _scratch(context, problem.result_bytes) as scratch:
        problem.call(scratch.result, algorithm, scratch.workspace)(scratch.stream.number)


def fastest(context: Context, problem: Problem, what: str) -> Algorithm:
    """The candidate of the least median time, weights cold in the cache. The context must be current.

    Raises CudaError where cublasLt has no algorithm, OutOfMemory for scratch.
    """
    candidates = _candidates(problem, what)
    if len(candidates) == 1:
        warm_up(context, problem, candidates[0])
        return candidates[0]
    with _scratch(context, problem.result_bytes, 2 * context.attribute("L2_CACHE_SIZE")) as scratch:
        times = [_seconds(context, problem, candidate, scratch) for candidate in candidates]
    if min(times) == inf:
        raise CudaError(f"cublasLt refuses every algorithm that it proposes for {what}")
    return candidates[times.index(min(times))]


@dataclass(frozen=True, slots=True)
class _Scratch:
    stream: CudaStream
    result: int
    workspace: int
    flush: int
    flush_bytes: int


@contextmanager
def _scratch(context: Context, result_bytes: int, flush_bytes: int = 0) -> Iterator[_Scratch]:
    room = -(-result_bytes // _ALIGNMENT) * _ALIGNMENT
    memory = CudaMemory(context, room + WORKSPACE_BYTES + flush_bytes)
    try:
        stream = CudaStream(context)
        try:
            workspace = memory.address + room
            yield _Scratch(stream, memory.address, workspace, workspace + WORKSPACE_BYTES, flush_bytes)
        finally:
            stream.close()
    finally:
        memory.free()


def _candidates(problem: Problem, what: str) -> list[Algorithm]:
    """The heuristic's proposals, best first, for these very alignments and this workspace."""
    results, count = np.zeros(_CANDIDATES, _RESULT), ctypes.c_int(0)
    a, b, c = problem.layouts
    preference = cublasLt.matmul_preference_create()
    try:
        _set_preference(preference, problem)
        cublasLt.matmul_algo_get_heuristic(
            problem.handle, problem.description, a, b, c, c, preference, _CANDIDATES,
            results.ctypes.data, ctypes.addressof(count),
        )  # fmt: skip
    except cublasLt.cuBLASLtError as error:
        raise CudaError(f"cublasLt has no algorithm for {what}: {error}") from error
    finally:
        cublasLt.matmul_preference_destroy(preference)
    found = [row["algorithm"].tobytes() for row in results[: count.value] if row["state"] == 0]
    if not found:
        raise CudaError(f"cublasLt has no algorithm for {what}")
    return [(ctypes.c_ubyte * ALGORITHM_BYTES)(*each) for each in found]


def _set_preference(preference: int, problem: Problem) -> None:
    attributes = cublasLt.MatmulPreferenceAttribute
    a, b, c = problem.alignments
    workspace = ctypes.c_uint64(WORKSPACE_BYTES)
    cublasLt.matmul_preference_set_attribute(preference, attributes.MAX_WORKSPACE_BYTES, ctypes.addressof(workspace), 8)
    for attribute, number in (
        (attributes.REDUCTION_SCHEME_MASK, cublasLt.ReductionScheme.COMPUTE_TYPE),  # sums in float32 throughout
        (attributes.MIN_ALIGNMENT_A_BYTES, a),
        (attributes.MIN_ALIGNMENT_B_BYTES, b),
        (attributes.MIN_ALIGNMENT_C_BYTES, c),
        (attributes.MIN_ALIGNMENT_D_BYTES, c),
    ):
        value = ctypes.c_uint32(number)
        cublasLt.matmul_preference_set_attribute(preference, attribute, ctypes.addressof(value), 4)


def _seconds(context: Context, problem: Problem, algorithm: Algorithm, scratch: _Scratch) -> float:
    """The median over a few runs; before each, other bytes are driven through the cache."""
    start, end, times = Event(context, timing=True), Event(context, timing=True), []
    enqueue = problem.call(scratch.result, algorithm, scratch.workspace)
    try:
        for _ in range(_RUNS + 1):
            filled = driver.cuMemsetD8Async(scratch.flush, 0, scratch.flush_bytes, scratch.stream.handle)
            context.checked(filled, "cuMemsetD8Async", f"{scratch.flush_bytes} bytes")
            start.record(scratch.stream)
            enqueue(scratch.stream.number)
            end.record(scratch.stream)
            scratch.stream.synchronize()
            times.append(end.seconds_since(start))
        return median(times[1:])
    except cublasLt.cuBLASLtError:
        return inf  # a candidate that the heuristic proposes and the library then refuses
    finally:
        start.destroy()
        end.destroy()
