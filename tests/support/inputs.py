"""An artifact of inputs of every kind, for what may be written to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from kern.manifest.builder import ManifestBuilder
from support.artifacts import toy_kernels, write_artifact
from support.toy import MODULE, single

DTYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "fp8e4m3": ml_dtypes.float8_e4m3fn,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u8": np.uint8,
}
FRAMES, HEIGHT, WIDTH = 4, 3, 5
BOUNDS = (FRAMES, HEIGHT, WIDTH)


def write_inputs(folder: Path) -> Path:
    """Inputs of every dtype, [4]; one of three dimensions, one of a number of rows that no symbol gives."""
    b = ManifestBuilder("inputs")
    frames, h, w = (b.symbol(name, max=most) for name, most in zip("fhw", BOUNDS, strict=True))
    program = b.program("run")
    for dtype in DTYPES:
        b.kernel(f"copy_{dtype}", single("copy_bytes", (f"out buffer<{dtype}>", f"in buffer<{dtype}>", "i32")))
        program.dispatch(f"copy_{dtype}", b.output(f"out_{dtype}", dtype, (4,)), b.input(dtype, dtype, (4,)), 0)
    for name, shape in {"video": (frames, h, w), "fixed": (4, w)}.items():
        source, target = b.input(name, "f32", shape), b.output(f"out_{name}", "f32", shape)
        program.dispatch("copy_f32", target, source, 0)
    return write_artifact(folder, b.build(), {MODULE: toy_kernels()})
