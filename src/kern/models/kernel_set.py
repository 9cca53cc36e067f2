"""From a target to kernels: the library that implements the entries, and the modules compiled for it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kern.artifact.errors import UnknownTarget
from kern.checkpoints.config import TransformerConfig
from kern.device import open_device
from kern.device.base import DeviceUnavailable
from kern.device.host.target import host_target
from kern.kernels.compile_cuda import check_architecture, compile_cuda_modules
from kern.kernels.compile_host import HOST_TARGETS, check_host_target, compile_host_modules
from kern.kernels.cuda_library import cuda_kernels
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.cuda_sizes import Round, Sizes
from kern.kernels.cuda_wide import WIDE_TARGET
from kern.kernels.host_library import host_kernels
from kern.manifest.types import Kernel
from kern.models.buffers import Limits
from kern.models.speculation.config import DraftConfig
from kern.models.unfused_layers import BlockLayout

HOST: Final = "host"
"""The target that means this machine's processor."""


@dataclass(frozen=True, slots=True)
class KernelSet:
    """The entries' implementations, and the files that they are pinned to.

    `block` is the layout of keys and values in a page, for recorded kernels; None is our own kernels' layout.
    """

    target: str
    entries: Mapping[str, Kernel]
    modules: Mapping[str, bytes]
    block: BlockLayout | None = None


def check_target(target: str) -> None:
    """Raises UnknownTarget for what cannot be built, before anything is fetched or compiled."""
    if target.startswith("sm_"):
        check_architecture(CudaPlan(target, Sizes(32, 32, 1, 1, 64)))
    elif target in HOST_TARGETS:
        check_host_target(target)
    elif target not in ("auto", HOST):
        raise UnknownTarget(
            f"no kernels can be built for the target {target!r}",
            f"targets: auto, host, {', '.join(HOST_TARGETS)}, sm_80 and later",
        )


def is_host(target: str) -> bool:
    """Whether the target is this machine's processor, or an instruction set by name."""
    return target == HOST or target in HOST_TARGETS


def kernel_set(target: str, config: TransformerConfig, limits: Limits, draft: DraftConfig | None = None) -> KernelSet:
    """Kernels for `target`: `host`, `x86-64-v3`, `sm_90a` and the like.

    `draft` is a draft that they have to run too.
    Raises UnknownTarget, UnsupportedSizes, and what the compilers raise.
    """
    check_target(target)
    if is_host(target):
        modules = compile_host_modules(host_target() if target == HOST else target)
        return KernelSet(
            target, host_kernels(_hashes(modules), q_heads=config.heads, kv_heads=config.kv_heads), modules
        )
    return cuda_kernel_set(target, config, limits, draft)


def cuda_sizes(config: TransformerConfig, limits: Limits) -> Sizes:
    """What our own kernels for CUDA are compiled for. Raises UnsupportedSizes."""
    return Sizes(config.hidden, config.ffn, config.heads, config.kv_heads, config.head_dim, limits.sequences)


def cuda_kernel_set(
    target: str, config: TransformerConfig, limits: Limits, draft: DraftConfig | None = None
) -> KernelSet:
    """Our own kernels for an architecture. Raises UnknownTarget, UnsupportedSizes, and what the compiler raises."""
    round = None if draft is None else Round(draft.rows, draft.transformer.ffn, draft.rank)
    plan = CudaPlan(target, cuda_sizes(config, limits), round=round)
    modules = compile_cuda_modules(plan)
    return KernelSet(target, cuda_kernels(plan, _hashes(modules)), modules)


def resolved_target(target: str) -> str:
    """The target, and for `auto` that of this machine's GPU, or `host` if there is no GPU."""
    if target != "auto":
        return target
    try:
        device = open_device("cuda")
    except DeviceUnavailable:
        return "host"
    try:
        return WIDE_TARGET if device.target == WIDE_TARGET.removesuffix("a") else device.target
    finally:
        device.close()


def _hashes(modules: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(image).hexdigest() for name, image in modules.items()}
