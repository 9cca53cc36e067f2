"""From a recording to an artifact's kernels: the recorded ones, and our own for what they leave."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kern.artifact.errors import UnknownTarget
from kern.checkpoints.config import TransformerConfig, UnsupportedModel
from kern.manifest.types import Kernel
from kern.mining import Recording, read_recordings
from kern.models.buffers import Limits
from kern.models.kernel_set import KernelSet, cuda_kernel_set, cuda_sizes, is_host
from kern.recorded.modules import target_of
from kern.recorded.vllm.evidence import examine
from kern.recorded.vllm.library import module_file, recorded_kernels
from kern.recorded.vllm.parse_pass import wired

_OWN: Final = (
    *("embedding_bf16", "matmul", "matmul_f32", "token_nll", "begin", "argmax", "advance"),
    *("qkv_matmul", "output_matmul", "gate_up_matmul", "down_matmul", "logits_matmul"),
)
"""What stays ours: what is around the layers, and all products.

Each entry has the fastest implementation that is at hand. A chunk's products are cublasLt's, as vLLM's are. A step's
are kernels of our own: on an H200 those of Qwen3-4B take 2.1 ms, and cublasLt's 2.7 whichever algorithm is taken.
"""


def recorded_kernel_set(dump: Path, target: str, config: TransformerConfig, limits: Limits) -> KernelSet:
    """The kernels of a build on the recording `dump` of vLLM running the model of `config`, eagerly, batch 1.

    `target` must run the recorded modules; `auto` is what they were built for. They decode one sequence at a time.
    Raises UnsupportedModel, UnsupportedSizes, UnknownTarget, MiningError, Refuted, BadModule, WrongTarget, and what our
    own kernels' compiler raises.
    """
    if not config.qk_norm:
        raise UnsupportedModel(f"recorded kernels are wired for qwen3, not {config.family}", "leave the recording out")
    if limits.sequences != 1:
        raise UnsupportedModel(
            f"{limits.sequences} sequences are asked for, and recorded kernels decode one", "build for one sequence"
        )
    if is_host(target):
        raise UnknownTarget("recorded kernels do not run on the host", "leave --target out, or give an architecture")
    cuda_sizes(config, limits)
    recording = _recording(dump)
    evidence = examine(recording.launches, config, ended=recording.ended)
    recorded = recorded_kernels(evidence, config)
    steps = tuple(step for kernel in recorded.values() for step in kernel.impl.steps)
    hashes = {step.sha256 for step in steps if step.sha256 is not None}
    modules = {module_file(sha256): recording.module(sha256) for sha256 in sorted(hashes)}
    own = cuda_kernel_set(target_of(target, modules, steps), config, limits)
    return KernelSet(own.target, entries(own.entries, recorded), {**own.modules, **modules}, evidence.block)


def _recording(dump: Path) -> Recording:
    """Of the recorded processes the one that launched most of the kernels that are wired: the engine itself."""
    recordings, _ = read_recordings(dump)
    return max(recordings, key=lambda recording: (len(wired(recording.launches)), len(recording.launches)))


def entries(own: Mapping[str, Kernel], recorded: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """All entries of a build: the recorded ones, and of our own what they leave."""
    return {**{name: own[name] for name in _OWN}, **recorded}
