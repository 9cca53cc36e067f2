"""An artifact with a state per sequence, which counts the values that came to each, and a state per token."""

from __future__ import annotations

from pathlib import Path

from kern.manifest.builder import ManifestBuilder
from support.artifacts import compiled, write_artifact
from support.toy import MODULE, single

VALUES = 5
"""Values are 0 … 4."""
BLOCK = 4 * VALUES
"""Bytes of a sequence: no multiple of any alignment."""
PAGE = 8
ROWS = 6
"""Most rows of a call."""
SLOTS = 4
"""Sequences that `seen` has room for."""
SOURCE = """
#include "kern_host.h"

/* counts[slots[r]][values[r]] += 1 for each row with a slot */
KERN_KERNEL(count, "ptr,ptr,ptr") {
    int32_t (*counts)[5] = KERN_ARG(void *, 0);
    const int32_t *slots = KERN_ARG(const int32_t *, 1), *values = KERN_ARG(const int32_t *, 2);
    for (uint32_t r = 0; r < launch->grid.x; r++)
        if (slots[r] >= 0)
            counts[slots[r]][values[r]]++;
}

/* seen = counts of the first sequences */
KERN_KERNEL(tell, "ptr,ptr,i32") {
    int32_t *seen = KERN_ARG(int32_t *, 0);
    const int32_t *counts = KERN_ARG(const int32_t *, 1);
    for (int32_t i = 0; i < KERN_ARG(int32_t, 2) * 5; i++)
        seen[i] = counts[i];
}

/* pool[places[r]] = values[r] + 1, four bytes per token */
KERN_KERNEL(keep, "ptr,ptr,ptr") {
    int32_t *pool = KERN_ARG(int32_t *, 0);
    const int32_t *places = KERN_ARG(const int32_t *, 1), *values = KERN_ARG(const int32_t *, 2);
    for (uint32_t r = 0; r < launch->grid.x; r++)
        pool[places[r]] = values[r] + 1;
}
"""


CUDA_SOURCE = """
extern "C" __global__ void count(int (*counts)[5], const int *slots, const int *values) {
    int r = blockIdx.x;
    if (slots[r] >= 0)
        atomicAdd(&counts[slots[r]][values[r]], 1);
}
extern "C" __global__ void tell(int *seen, const int *counts, int held) {
    for (int i = 0; i < held * 5; i++)
        seen[i] = counts[i];
}
extern "C" __global__ void keep(int *pool, const int *places, const int *values) {
    pool[places[blockIdx.x]] = values[blockIdx.x] + 1;
}
"""
"""The same, a block for each row. Rows may be of one sequence."""


def counted_artifact(folder: Path, target: str | None = None) -> Path:
    """`count` counts a value for the sequence of each row and keeps it at a place of the pool; `tell` reads counts.

    For this machine, or for a GPU target.
    """
    b = ManifestBuilder("counted")
    rows, held = b.symbol("rows", max=ROWS), b.symbol("held", max=SLOTS)
    counts = b.sequence_state("counts", bytes=BLOCK)
    pool = b.state("pool", bytes_per_token=4, granule=PAGE)
    slots, values, places = (b.input(name, "i32", (rows,)) for name in ("slots", "values", "places"))
    seen = b.output("seen", "i32", (held, VALUES))
    taking = ("inout ptr", "in buffer<i32>", "in buffer<i32>")
    module = MODULE if target is None else "counted.cubin"
    for name, params, grid in (
        ("count", taking, rows),
        ("keep", taking, rows),
        ("tell", ("out buffer<i32>", "in ptr", "i32"), 1),
    ):
        kernel = single(name, params, (grid, 1, 1))
        steps = tuple(step.model_copy(update={"cubin": module}) for step in kernel.impl.steps)
        b.kernel(name, kernel.model_copy(update={"impl": kernel.impl.model_copy(update={"steps": steps})}))
    program = b.program("count")
    program.dispatch("count", counts, slots, values)
    program.dispatch("keep", pool, places, values)
    b.program("tell").dispatch("tell", seen, counts, held)
    if target is None:
        return write_artifact(folder, b.build(), {module: compiled(SOURCE)})
    from kern.toolchain.nvrtc import compile_cubin

    return write_artifact(folder, b.build(), {module: compile_cubin(CUDA_SOURCE, "counted.cu", target)})
