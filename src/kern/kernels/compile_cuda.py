"""Compiling the CUDA kernels with NVRTC, at build time, for one architecture; no GPU is needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kern.artifact.errors import UnknownTarget
from kern.kernels.cuda_plan import CudaPlan
from kern.toolchain import nvrtc
from kern.toolchain.cuda_headers import kernel_headers

SOURCES: Final = Path(__file__).parent / "cuda"
_OPTIONS: Final = ("--std=c++17", "--device-as-default-execution-space")
"""CUDA 13.0 takes a generic lambda for a host function without the second one; later versions do not."""


def compile_cuda_modules(plan: CudaPlan) -> Mapping[str, bytes]:
    """Compile every kernel source that the plan needs, for its target: cubins by file name.

    The same compiler gives the same bytes each time. Raises CudaCompilerMissing; CompileError with the compiler's log.
    """
    sources = {path.stem: path for path in sorted(SOURCES.glob("*.cu"))}
    modules: dict[str, tuple[str, Mapping[str, int]]] = {
        **{stem: (stem, {}) for stem in sources if plan.has(stem)},
        **plan.variants,
    }
    return {
        f"{module}.cubin": compile_cuda_source(sources[stem].read_text(), sources[stem].name, plan, differing)
        for module, (stem, differing) in modules.items()
    }


def compile_cuda_source(text: str, name: str, plan: CudaPlan, differing: Mapping[str, int]) -> bytes:
    """The cubin of CUDA C++ that may include the kernels' headers, with the plan's macros, overridden by `differing`.

    `name` is the source's name in the compiler's messages. Raises CudaCompilerMissing; CompileError with its log.
    """
    folders = (f"--include-path={folder}" for folder in (SOURCES, *kernel_headers()))
    macros = (f"--define-macro={macro}={value}" for macro, value in {**plan.defines(), **differing}.items())
    return nvrtc.compile_cubin(text, name, plan.target, (*_OPTIONS, *folders, *macros))


def check_architecture(plan: CudaPlan) -> None:
    """Raises UnknownTarget where the compiler does not support the plan's architecture, CudaCompilerMissing."""
    known = nvrtc.architectures()
    if plan.architecture not in known:
        names = ", ".join(f"sm_{number}" for number in known if number >= 80)
        raise UnknownTarget(f"the CUDA compiler does not support `{plan.target}`", f"it supports {names}")
