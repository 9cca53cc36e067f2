"""Launch two kernels for a survey of launch ABIs: one written in Triton, one from CUTLASS (a grouped product).

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
        # Four products of the same rows' quarters, which torch gives to its CUTLASS kernel for groups.
        left = torch.randn(rows, 256, device="cuda", dtype=torch.bfloat16)
        right = torch.randn(4, 512, 256, device="cuda", dtype=torch.bfloat16).transpose(-2, -1)
        ends = torch.arange(1, 5, device="cuda", dtype=torch.int32) * (rows // 4)
        torch._grouped_mm(left, right, offs=ends)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
