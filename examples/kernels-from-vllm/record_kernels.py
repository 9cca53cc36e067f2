"""Launch two single kernels for a survey of launch ABIs: one written in Triton, one of CUTLASS (scaled fp8 product).

kern capture -o DUMP -- python record_kernels.py
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def scale_rows(source, target, width, factor, BLOCK: tl.constexpr):
    """target[row] = source[row] * factor."""
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    mask = columns < width
    values = tl.load(source + row * width + columns, mask=mask)
    tl.store(target + row * width + columns, values * factor, mask=mask)


def main() -> None:
    """Launch each with several row counts."""
    for rows in (16, 32, 64, 128):
        source = torch.randn(rows, 1000, device="cuda")
        target = torch.empty_like(source)
        scale_rows[(rows,)](source, target, 1000, 0.5, BLOCK=1024)
        left = torch.randn(rows, 256, device="cuda").to(torch.float8_e4m3fn)
        right = torch.randn(512, 256, device="cuda").to(torch.float8_e4m3fn)
        scales = torch.ones(rows, 1, device="cuda"), torch.ones(1, 512, device="cuda")
        # Scales a row make torch take its CUTLASS kernel in place of cuBLAS.
        torch._scaled_mm(left, right.t(), *scales, out_dtype=torch.bfloat16)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
