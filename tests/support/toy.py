"""A toy artifact with one of everything the runtime handles, and what its programs compute, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kern.manifest.builder import ManifestBuilder
from kern.manifest.expressions import Expr, Sym
from kern.manifest.types import Arg, Impl, Kernel, Manifest, Scratch, ScratchArg, Step, StepArg
from support.artifacts import toy_kernels, write_artifact

COLUMNS = 8
ROWS = 16
"""Upper bound of the symbol `rows`; 1 in program `step`."""
CAPACITY = 64
MODULE = "toy.so"


def step(
    symbol: str,
    params: Sequence[str],
    args: Sequence[StepArg],
    grid: tuple[Expr, Expr, Expr] = (1, 1, 1),
    shared_mem: Expr = 0,
) -> Step:
    """A launch of a function of toy_kernels.c."""
    return Step(
        symbol=symbol,
        params=tuple(params),
        block=(1, 1, 1),
        grid=grid,
        shared_mem=shared_mem,
        cubin=MODULE,
        args=tuple(args),
    )


def single(
    symbol: str,
    params: Sequence[str],
    grid: tuple[Expr, Expr, Expr] = (1, 1, 1),
    shared_mem: Expr = 0,
) -> Kernel:
    """A kernel of one launch that takes the interface's parameters as they are."""
    args = [Arg(arg=index) for index in range(len(params))]
    launch = step(symbol, params, args, grid, shared_mem)
    return Kernel(params=tuple(params), impl=Impl(steps=(launch,)))


def two_steps() -> Kernel:
    """Row sums into a scratch, their total into the output; a kept scratch counts the calls."""
    return Kernel(
        params=("out buffer<f32>", "out buffer<i32>", "in buffer<f32>", "i32", "i32"),
        impl=Impl(
            scratch={
                "part": Scratch(dtype="f32", shape=(Sym(sym="rows"),)),
                "calls": Scratch(dtype="i32", shape=(1,), keep=True),
            },
            steps=(
                step(
                    "row_sums_f32",
                    ("out buffer<f32>", "in buffer<f32>", "i32"),
                    (ScratchArg(scratch="part"), Arg(arg=2), Arg(arg=3)),
                    (Sym(sym="rows"), 1, 1),
                ),
                step(
                    "total_f32",
                    ("out buffer<f32>", "out buffer<i32>", "in buffer<f32>", "inout buffer<i32>", "i32"),
                    (Arg(arg=0), Arg(arg=1), ScratchArg(scratch="part"), ScratchArg(scratch="calls"), Arg(arg=4)),
                ),
            ),
        ),
    )


def toy_manifest() -> Manifest:
    """`fill` keeps rows and adds them up, `step` does so for one row, `recall` sums what was kept."""
    b = ManifestBuilder("toy")
    rows, start = b.symbol("rows", max=ROWS), b.symbol("start", min=0, max=CAPACITY)
    pool = b.state("pool", bytes_per_token=4 * COLUMNS, granule=16)
    x = b.input("x", "f32", (rows, COLUMNS))
    bias = b.weight("bias", "f32", (COLUMNS,))
    gain = b.weight("gain", "f32", (COLUMNS,))
    biased = b.workspace("biased", "f32", (rows, COLUMNS))
    gained = b.workspace("gained", "f32", (rows, COLUMNS))
    total = b.carry("total", "f32", (COLUMNS,))
    sums, count = b.output("sum", "f32", (1,)), b.output("count", "i32", (1,))
    kept = b.output("kept", "f32", (COLUMNS,))
    seen = b.output("seen", "f32", (rows, COLUMNS))
    by_row: tuple[Expr, Expr, Expr] = (rows, 1, 1)
    add = b.kernel(
        "add_scaled",
        single(
            "add_scaled_f32",
            ("out buffer<f32>", "in buffer<f32>", "in buffer<f32>", "f32", "i32"),
            by_row,
        ),
    )
    accumulate = b.kernel(
        "accumulate", single("accumulate_f32", ("inout buffer<f32>", "in buffer<f32>", "i32"), by_row)
    )
    remember = b.kernel("remember", single("remember_f32", ("in buffer<f32>", "inout ptr", "i64", "i32"), by_row))
    recall = b.kernel("recall", single("recall_f32", ("out buffer<f32>", "in ptr", "i64", "i32")))
    summarize = b.kernel("summarize", two_steps())
    for name, bounds in (("fill", {}), ("step", {"rows": (1, 1)})):
        program = b.program(name, **bounds)
        program.dispatch(add, biased, x, bias, 1.0, COLUMNS, label="bias")
        program.dispatch(add, gained, biased, gain, 0.5, COLUMNS, label="gain")
        program.dispatch(add, seen, gained, bias, 0.0, COLUMNS)
        program.dispatch(accumulate, total, gained, COLUMNS)
        program.dispatch(remember, gained, pool, start, COLUMNS)
        program.dispatch(summarize, sums, count, gained, COLUMNS, rows)
    b.program("recall").dispatch(recall, kept, pool, start, COLUMNS)
    return b.build()


def toy_weights(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Weights of small whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-8, 8, COLUMNS).astype(np.float32) for name in ("bias", "gain")}


def toy_artifact(folder: Path, weights: dict[str, NDArray[np.float32]] | None = None) -> Path:
    """The toy's folder."""
    return write_artifact(
        folder, toy_manifest(), {MODULE: toy_kernels()}, toy_weights() if weights is None else weights
    )


def gained(x: NDArray[np.float32], weights: dict[str, NDArray[np.float32]]) -> NDArray[np.float32]:
    """What `fill` leaves in the buffers `gained` and `seen`."""
    return x + weights["bias"] + np.float32(0.5) * weights["gain"]
