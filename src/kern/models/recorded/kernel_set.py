"""From a recording to an artifact's kernels: the recorded ones, and our own for what they leave."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from kern.artifact.modules import describe
from kern.artifact.targets import runs_on
from kern.manifest.errors import KernError
from kern.manifest.types import Kernel
from kern.mining import Recording, read_recording
from kern.mining.recording import process_folders
from kern.models.buffers import Limits
from kern.models.config import TransformerConfig, UnsupportedModel
from kern.models.recorded.across import examine
from kern.models.recorded.library import module_file, recorded_kernels
from kern.models.targets import KernelSet, UnknownTarget, cuda_kernel_set

_OWN: Final = (
    *("embedding_bf16", "matmul", "matmul_f32", "token_nll", "begin", "argmax", "advance"),
    *("qkv_matmul", "output_matmul", "gate_up_matmul", "down_matmul", "logits_matmul"),
)
"""What stays ours: what is around the layers, and all products.

Each entry has the fastest implementation that is at hand. A chunk's products are cublasLt's, as vLLM's are. A step's
are kernels of our own: on an H200 those of Qwen3-4B take 2.1 ms, and cublasLt's 2.7 whichever algorithm is taken.
"""


class WrongTarget(KernError):
    """Recorded kernels are for other machines than the one that is built for."""

    code: ClassVar[str] = "recorded-target"


def recorded_kernel_set(dump: Path, target: str, config: TransformerConfig, limits: Limits) -> KernelSet:
    """The kernels of a build on the recording `dump` of vLLM running the model of `config`, eagerly, batch 1.

    `target` must run the recorded modules; `auto` is what they were built for. They decode one sequence at a time.
    Raises UnsupportedModel, UnknownTarget, MiningError, Refuted, BadModule, WrongTarget, and what our own kernels'
    compiler raises.
    """
    if not config.qk_norm:
        raise UnsupportedModel(f"recorded kernels are wired for qwen3, not {config.family}", "leave the recording out")
    if limits.sequences != 1:
        raise UnsupportedModel(
            f"{limits.sequences} sequences are asked for, and recorded kernels decode one", "build for one sequence"
        )
    if target == "host":
        raise UnknownTarget("recorded kernels do not run on the host", "leave --target out, or give an architecture")
    recording = _recording(dump)
    evidence = examine(recording.launches, config)
    recorded = recorded_kernels(evidence, config)
    hashes = {step.sha256 for kernel in recorded.values() for step in kernel.impl.steps if step.sha256 is not None}
    modules = {module_file(sha256): recording.module(sha256) for sha256 in sorted(hashes)}
    own = cuda_kernel_set(_target(target, modules), config, limits)
    return KernelSet(own.target, entries(own.entries, recorded), {**own.modules, **modules}, evidence.block)


def _recording(dump: Path) -> Recording:
    """Of the recorded processes the one that launched most: the engine itself, where it has started others."""
    return max(map(read_recording, process_folders(dump)), key=lambda recording: len(recording.launches))


def entries(own: Mapping[str, Kernel], recorded: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """All entries of a build: the recorded ones, and of our own what they leave."""
    return {**{name: own[name] for name in _OWN}, **recorded}


def _target(asked: str, modules: Mapping[str, bytes]) -> str:
    """`asked`, if it runs all modules; for `auto` the most particular of their own targets that does.

    Code for sm_90 runs beside code for sm_90a, and vLLM's recordings have both.
    """
    built_for = sorted({describe(name, image, "").target for name, image in modules.items()}, reverse=True)
    candidates = built_for if asked == "auto" else [asked]
    fitting = [target for target in candidates if all(runs_on(module, target) for module in built_for)]
    if not fitting:
        machine = "one machine" if asked == "auto" else asked
        raise WrongTarget(
            f"the recorded kernels are built for {', '.join(built_for)}, which do not all run on {machine}",
            "record on the machine that is built for, or leave --target out",
        )
    return fitting[0]
