"""From a recording to an artifact's kernels: the recorded ones, and our own for the other entries."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Final

from kern.artifact.errors import UnknownTarget
from kern.checkpoints.config import TransformerConfig, UnsupportedModel
from kern.kernels.implementation import FEEDBACK
from kern.manifest.types import Kernel
from kern.mining import Recording, read_recordings
from kern.models.buffers import Limits
from kern.models.kernel_set import KernelSet, cuda_kernel_set, cuda_sizes, is_host
from kern.recorded.assumptions import Refuted
from kern.recorded.engine import Engine
from kern.recorded.evidence import gather_evidence
from kern.recorded.library import recorded_kernels
from kern.recorded.modules import target_of
from kern.recorded.parse_pass import used
from kern.recorded.vllm.engine import VLLM

ENGINES: Final = (VLLM,)
"""The engines whose recorded kernels can be used."""

_OWN: Final = (
    *("embedding_bf16", "matmul", "matmul_f32", "gather_rows", "argmax", "token_nll"),
    *FEEDBACK,
    *("qkv_matmul", "output_matmul", "gate_up_matmul", "down_matmul", "logits_matmul"),
)
"""The entries that stay ours: what is around the layers, and all products.

Each entry has the fastest implementation that is available. A chunk's products are cublasLt's, as vLLM's are. A step's
are our own kernels: on an H200 those of Qwen3-4B take 2.1 ms, and cublasLt's 2.7 whichever algorithm is taken.
"""


def recorded_kernel_set(dump: Path, target: str, config: TransformerConfig, limits: Limits) -> KernelSet:
    """The kernels of a build on the recording `dump` of an engine that ran the model of `config`, eagerly, batch 1.

    `target` must run the recorded modules; `auto` is what they were built for. They decode one sequence at a time.
    Raises UnsupportedModel, UnsupportedSizes, UnknownTarget, MiningError, Refuted, BadModule, WrongTarget, and what our
    own kernels' compiler raises.
    """
    if limits.sequences != 1:
        raise UnsupportedModel(
            f"recorded kernels decode one sequence, and {limits.sequences} are asked for", "build for one sequence"
        )
    if is_host(target):
        raise UnknownTarget("recorded kernels do not run on the host", "leave --target out, or give an architecture")
    cuda_sizes(config, limits)
    engine, recording = _engine_of(dump)
    if config.family != engine.family:
        raise UnsupportedModel(
            f"recorded kernels of {engine.name} are for {engine.family}, not {config.family}", "leave the recording out"
        )
    try:
        evidence = gather_evidence(engine, recording.launches, config, ended=recording.ended)
        recorded = recorded_kernels(evidence, config)
        steps = tuple(step for kernel in recorded.values() for step in kernel.impl.steps)
        hashes = {step.sha256 for step in steps if step.sha256 is not None}
        modules = {engine.module_file(sha256): recording.module(sha256) for sha256 in sorted(hashes)}
        target = target_of(target, modules, steps)
    except Refuted as refuted:
        refuted.help += f". Record the model that is built, with {engine.setup}"
        raise
    own = cuda_kernel_set(target, config, limits)
    return KernelSet(own.target, entries(own.entries, recorded), {**own.modules, **modules}, evidence.block)


def _engine_of(dump: Path) -> tuple[Engine, Recording]:
    """The engine, and of the recorded processes its own: the one that launched most of the kernels that are used."""
    recordings, _ = read_recordings(dump)
    pairs = product(ENGINES, recordings)
    return max(pairs, key=lambda pair: (len(used(pair[0], pair[1].launches)), len(pair[1].launches)))


def entries(own: Mapping[str, Kernel], recorded: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """All entries of a build: the recorded ones, and our own for the others."""
    return {**{name: own[name] for name in _OWN}, **recorded}
