"""Chooses cublasLt's algorithm for a shape: the candidates of its heuristic are timed on scratch memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_size_t, c_void_p
from dataclasses import dataclass
from functools import partial
from math import inf
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np
from cuda.bindings import driver

from kern.device.base import CudaError
from kern.device.cuda import cublaslt
from kern.device.cuda.context import SEE_DRIVER, Context
from kern.device.cuda.matmul_cache import ALGORITHM_BYTES, WORKSPACE_BYTES
from kern.device.cuda.memory import CudaMemory
from kern.device.cuda.stream import CudaStream, Event
from kern.manifest.arrays import round_up

_RESULT: Final = np.dtype(
    [("algorithm", f"V{ALGORITHM_BYTES}"), ("workspace", "<u8"), ("state", "<i4"), ("waves", "<f4"), ("_", "<i4", 4)]
)
"""cublasLtMatmulHeuristicResult_t; `state` is 0 for a result that can be used."""

Algorithm = ctypes.Array[Any]
Enqueue = Callable[[c_void_p], int]
"""Gives a product to a stream, by handle, and returns cublasLt's status, 0 where it is accepted."""

BindAddresses = Callable[[int, int, int], Enqueue]
"""Addresses of W, A and C → the product of these matrices."""


class Effort(NamedTuple):
    """How many candidates are timed, and how often each."""

    candidates: int
    runs: int


UPDATE: Final = "update nvidia-cublas, or use other sizes"
"""Help where cublasLt cannot compute a product."""

QUICK: Final = Effort(3, 3)
"""For a shape used for the first time: most of the time is spent loading the candidates' kernels."""

THOROUGH: Final = Effort(16, 9)
"""For tuning on request."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A product except its addresses: cublasLt's handle, descriptors and scalars, in the order W, A, C."""

    handle: int
    description: int
    layouts: tuple[int, int, int]
    scalars: tuple[int, int]
    alignments: tuple[int, int, int]
    a_bytes: int
    c_bytes: int

    def with_algorithm(self, algorithm: Algorithm, workspace: int) -> BindAddresses:
        """The product by `algorithm`, to be bound to addresses; everything that its calls share is made here."""
        lw, la, lc = map(c_void_p, self.layouts)
        alpha, beta = map(c_void_p, self.scalars)
        handle, description, chosen = c_void_p(self.handle), c_void_p(self.description), byref(algorithm)
        matmul, space, size = cublaslt.matmul(), c_void_p(workspace), c_size_t(WORKSPACE_BYTES)

        def bind(w: int, a: int, c: int) -> Enqueue:
            out = c_void_p(c)
            return partial(
                matmul, handle, description, alpha, c_void_p(w), lw, c_void_p(a), la, beta, out, lc, out, lc,
                chosen, space, size,
            )  # fmt: skip

        return bind


def is_usable(problem: Problem, algorithm: Algorithm) -> bool:
    """Whether cublasLt accepts an algorithm for this problem, within the workspace."""
    result = np.zeros(1, _RESULT)
    w, a, c = problem.layouts
    try:
        cublaslt.call(
            "cublasLtMatmulAlgoCheck",
            problem.handle, problem.description, w, a, c, c, byref(algorithm), result.ctypes.data,
        )  # fmt: skip
    except CudaError:
        return False
    return bool(result["state"][0] == 0 and result["workspace"][0] <= WORKSPACE_BYTES)


def warm_up(context: Context, problem: Problem, w: int, algorithm: Algorithm, what: str) -> None:
    """Run once on scratch, so that its kernel is loaded before any capture. The context must be current.

    Raises CudaError where cublasLt refuses it, OutOfMemory for scratch.
    """
    with _scratch(context, problem) as scratch:
        _enqueue(scratch.call(problem, w, algorithm), scratch.stream, what)


def fastest(context: Context, problem: Problem, w: int, effort: Effort, what: str) -> Algorithm:
    """The candidate with the least median time among the heuristic's first. The context must be current.

    Only the product is timed, with the W that is at `w`; A and C are scratch of any content. Before each run, other
    bytes are written through the L2 cache, so that W is read from memory as in a model.
    Raises CudaError where cublasLt has no algorithm, OutOfMemory for scratch.
    """
    found = candidates(problem, effort.candidates, what)
    with _scratch(context, problem, 2 * context.attribute("L2_CACHE_SIZE")) as scratch:
        times = [_seconds(context, scratch, scratch.call(problem, w, each), effort.runs, what) for each in found]
    if min(times) == inf:
        raise CudaError(f"cublasLt refuses every algorithm that it proposes for {what}", UPDATE)
    return found[times.index(min(times))]


def candidates(problem: Problem, most: int, what: str) -> list[Algorithm]:
    """The heuristic's proposals, best first, for these alignments and the workspace; sums are in float32.

    Raises CudaError where there are none.
    """
    results, count = np.zeros(most, _RESULT), ctypes.c_int(0)
    w, a, c = problem.layouts
    preference = cublaslt.create("cublasLtMatmulPreferenceCreate")
    try:
        _set_preference(preference, problem)
        cublaslt.call(
            "cublasLtMatmulAlgoGetHeuristic",
            problem.handle, problem.description, w, a, c, c, preference, most, results.ctypes.data, byref(count),
        )  # fmt: skip
    except CudaError as error:
        raise CudaError(f"cublasLt has no algorithm for {what}: {error.message}", UPDATE) from error
    finally:
        cublaslt.call("cublasLtMatmulPreferenceDestroy", preference)
    found = [row["algorithm"].tobytes() for row in results[: count.value] if row["state"] == 0]
    if not found:
        raise CudaError(f"cublasLt has no algorithm for {what}", UPDATE)
    return [(ctypes.c_ubyte * ALGORITHM_BYTES)(*each) for each in found]


def _set_preference(preference: int, problem: Problem) -> None:
    w, a, c = problem.alignments
    for attribute, value in (
        (cublaslt.PREFERENCE_WORKSPACE_BYTES, ctypes.c_uint64(WORKSPACE_BYTES)),
        (cublaslt.PREFERENCE_REDUCTION_SCHEMES, ctypes.c_uint32(cublaslt.REDUCED_IN_COMPUTE_TYPE)),
        *zip(cublaslt.PREFERENCE_ALIGNMENTS, map(ctypes.c_uint32, (w, a, c, c)), strict=True),
    ):
        size = ctypes.sizeof(value)
        cublaslt.call("cublasLtMatmulPreferenceSetAttribute", preference, attribute, byref(value), size)


@dataclass(frozen=True, slots=True)
class _Scratch:
    stream: CudaStream
    c: int
    a: int
    workspace: int
    flush: int
    flush_bytes: int

    def call(self, problem: Problem, w: int, algorithm: Algorithm) -> Enqueue:
        return problem.with_algorithm(algorithm, self.workspace)(w, self.a, self.c)


@contextmanager
def _scratch(context: Context, problem: Problem, flush_bytes: int = 0) -> Iterator[_Scratch]:
    c_room, a_room = map(round_up, (problem.c_bytes, problem.a_bytes))
    memory = CudaMemory(context, c_room + a_room + WORKSPACE_BYTES + flush_bytes)
    try:
        stream = CudaStream(context)
        try:
            workspace = memory.address + c_room + a_room
            yield _Scratch(
                stream, memory.address, memory.address + c_room, workspace, workspace + WORKSPACE_BYTES, flush_bytes
            )
        finally:
            stream.close()
    finally:
        memory.free()


def _seconds(context: Context, scratch: _Scratch, enqueue: Enqueue, runs: int, what: str) -> float:
    """The median over a few runs, after one that loads the kernel; infinite where cublasLt refuses to run it."""
    events = [(Event(context, timing=True), Event(context, timing=True)) for _ in range(runs)]
    try:
        _enqueue(enqueue, scratch.stream, what)
        for start, end in events:
            filled = driver.cuMemsetD8Async(scratch.flush, 0, scratch.flush_bytes, scratch.stream.handle)
            context.checked(filled, "cuMemsetD8Async", f"{scratch.flush_bytes} bytes")
            start.record(scratch.stream)
            _enqueue(enqueue, scratch.stream, what)
            end.record(scratch.stream)
        scratch.stream.synchronize()
        return median(end.seconds_since(start) for start, end in events)
    except _Refused:
        return inf
    finally:
        for pair in events:
            for event in pair:
                event.destroy()


class _Refused(CudaError):
    """A product that cublasLt does not run."""


def _enqueue(enqueue: Enqueue, stream: CudaStream, what: str) -> None:
    if status := enqueue(c_void_p(stream.number)):
        raise _Refused(f"cublasLtMatmul of {what} failed: {cublaslt.described(status)}", SEE_DRIVER)
