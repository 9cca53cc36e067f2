"""A step against the kernel that it resolved to: parameters, block, shared memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from kern.artifact import codes
from kern.artifact.targets import shared_mem_limit
from kern.artifact.types import KernelInfo, ModuleInfo
from kern.manifest.counts import counted, excerpt
from kern.manifest.diagnostics import Diagnostic, Path
from kern.manifest.params import Layout, Param, layout
from kern.manifest.types import Step

_SHOWN: Final = 32
_PARTITION_REGISTERS: Final = 16384
_PARTITIONS: Final = 4
_WARP: Final = 32
"""A multiprocessor's four partitions have 16,384 registers each; a warp lives in one of them and gets registers in
units of 8 per thread (sm_70 to sm_121; CUDA C++ programming guide, technical specifications)."""


Signature = tuple[Layout, tuple[str, ...] | None]
"""The parameters of a kernel by its file: the layout and, in a host module, the types."""


def signature_of(kernel: KernelInfo) -> Signature:
    """The signature of a kernel."""
    return kernel.layout, kernel.types


def signatures_for(step: Step) -> tuple[Signature, Signature]:
    """The signatures of kernels that take the params of a step: in a cubin, and in a host module."""
    declared = layout(step.params)
    return (declared, None), (declared, tuple(map(_host_type, step.params)))


def errors(step: Step, module: ModuleInfo, kernel: KernelInfo, shared_mem: int, path: Path) -> Iterator[Diagnostic]:
    """Why `step`, at `path` of the manifest, cannot launch `kernel`; `shared_mem` is its largest, in bytes."""
    yield from _params_errors(step, kernel, path)
    yield from _block_errors(step, kernel, path)
    yield from _shared_mem_errors(module, kernel, shared_mem, path)


def _params_errors(step: Step, kernel: KernelInfo, path: Path) -> Iterator[Diagnostic]:
    """Differences between the step's params and the kernel's layout, and its types if the file has them."""
    declared = layout(step.params)
    if len(step.params) != len(kernel.layout.sizes):
        yield codes.PARAM_COUNT.at(
            (*path, "params"),
            f"{_named(kernel)} takes {counted(len(kernel.layout.sizes), 'parameter')}; the step "
            f"declares {len(step.params)}",
            f"declare each of its parameters (offset:bytes): {show(kernel.layout)}",
        )
    elif declared != kernel.layout:
        yield _layout_error(step, declared, kernel, path)
    elif kernel.types is not None:
        for index, (param, kind) in enumerate(zip(step.params, kernel.types, strict=True)):
            if _host_type(param) != kind:
                yield codes.PARAM_TYPE.at(
                    (*path, "params", index),
                    f"parameter {index} of {_named(kernel)} is {kind} in its module, and {param} in the step",
                    f"declare {kind}"
                    if kind != "ptr"
                    else "declare an address: in, out or inout, ptr or buffer<dtype>",
                )


def _layout_error(step: Step, declared: Layout, kernel: KernelInfo, path: Path) -> Diagnostic:
    """The first parameter that differs: later ones often differ only because of it."""
    own = kernel.layout
    pairs = zip(declared.offsets, declared.sizes, own.offsets, own.sizes, strict=True)
    index, (at, size, own_at, own_size) = next(
        (index, pair) for index, pair in enumerate(pairs) if pair[:2] != pair[2:]
    )
    return codes.PARAM_LAYOUT.at(
        (*path, "params", index),
        f"parameter {index} of {_named(kernel)} has {counted(own_size, 'byte')} at offset {own_at} in its "
        f"module, and {step.params[index]} has {size} at offset {at}",
        f"declare params that give the kernel's layout (offset:bytes): {show(own)}",
    )


def show(layout: Layout) -> str:
    """A layout for people, shortened if there are many parameters."""
    shown = " ".join(f"{o}:{s}" for o, s in zip(layout.offsets[:_SHOWN], layout.sizes[:_SHOWN], strict=True)) or "none"
    return shown + (" …" if len(layout.sizes) > _SHOWN else "")


def _named(kernel: KernelInfo) -> str:
    return f"kernel {excerpt(kernel.symbol)!r}"


def _host_type(param: Param) -> str:
    return param.scalar or "ptr"


def _block_errors(step: Step, kernel: KernelInfo, path: Path) -> Iterator[Diagnostic]:
    location, threads = (*path, "block"), math.prod(step.block)
    if kernel.required_block is not None:
        if step.block != kernel.required_block:
            yield codes.BLOCK_NOT_REQUIRED.at(
                location,
                f"{_named(kernel)} was compiled for blocks of {list(kernel.required_block)} only",
                f"use block {list(kernel.required_block)}",
            )
    elif kernel.max_threads is not None and threads > kernel.max_threads:
        yield codes.BLOCK_TOO_LARGE.at(
            location,
            f"the block has {threads} threads, and {_named(kernel)} was compiled for at most {kernel.max_threads}",
            "use a smaller block, or compile the kernel with larger __launch_bounds__",
        )
    elif kernel.registers and threads > (most := _threads_with(kernel.registers)):
        yield codes.BLOCK_TOO_LARGE.at(
            location,
            f"the block has {threads} threads, and {_named(kernel)}, with {kernel.registers} registers per "
            f"thread, can have at most {most}",
            f"use a smaller block, or compile the kernel with __launch_bounds__({threads})",
        )


def _threads_with(registers: int) -> int:
    """The most threads of a block with that many registers per thread."""
    per_warp = -(-registers // 8) * 8 * _WARP
    return _PARTITIONS * (_PARTITION_REGISTERS // per_warp) * _WARP


def _shared_mem_errors(module: ModuleInfo, kernel: KernelInfo, shared_mem: int, path: Path) -> Iterator[Diagnostic]:
    limit = shared_mem_limit(module.target)
    if limit is not None and kernel.static_shared_mem + shared_mem > limit:
        yield codes.SHARED_MEM.at(
            (*path, "shared_mem") if shared_mem else path,
            f"{_named(kernel)} has {kernel.static_shared_mem:,} bytes of static shared memory and the step "
            f"asks for up to {shared_mem:,} more; the limit of {module.target} per block is {limit:,}",
            f"ask for at most {max(0, limit - kernel.static_shared_mem):,} bytes at the largest symbol values",
        )
