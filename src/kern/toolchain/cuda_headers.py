"""Where CUDA's headers are, and CUPTI's with its library: in NVIDIA's wheels, or in a toolkit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from kern.manifest.errors import KernError, install_hint, variant
from kern.toolchain.nvrtc import CudaCompilerMissing

SYSTEM_TOOLKIT: Final = Path("/usr/local/cuda")
_CUPTI_HEADER: Final = "cupti_callbacks.h"
_CUDA_HEADER: Final = "cuda.h"
_KERNEL_HEADER: Final = "cuda_bf16.h"
_LIBRARIES: Final = ("libcupti.so.13", "libcupti.so.12")
_WHEELS: Final = ("nvidia.cu13", "nvidia.cuda_cupti", "nvidia.cuda_runtime")


HeadersMissing = variant(KernError, "headers-missing", "The headers of CUDA and CUPTI are not installed.", exit_code=2)


@dataclass(frozen=True, slots=True)
class Toolkit:
    """The folders to include, CUPTI's first, and CUPTI's library where there is one next to them."""

    includes: tuple[Path, ...]
    library: Path | None


def kernel_headers() -> tuple[Path, ...]:
    """The folders that CUDA kernels include: those of the wheels nvidia-cuda-runtime and nvidia-cuda-cccl.

    NVRTC comes from a wheel of the same version. Raises CudaCompilerMissing.
    """
    folders = [folder / "include" for folder in _wheel(_WHEELS[0])]
    if _holder(folders, _KERNEL_HEADER) is None:
        raise CudaCompilerMissing("CUDA's headers (nvidia-cuda-runtime) are not installed", install_hint("cuda"))
    return tuple(each for folder in folders for each in (folder, folder / "cccl"))


def find_toolkit() -> Toolkit:
    """NVIDIA's wheels in this Python, else the toolkit of CUDA_HOME; where that is not set, the one of /usr/local/cuda.

    The headers of two of them are never mixed. Raises HeadersMissing.
    """
    toolkit = _toolkit([folder for name in _WHEELS for folder in _wheel(name)])
    named = os.environ.get("CUDA_HOME")
    root = Path(named) if named else SYSTEM_TOOLKIT
    if toolkit is None:
        toolkit = _toolkit([root, root / "extras" / "CUPTI", *sorted(root.glob("targets/*-linux"))])
    if toolkit is None:
        missing = f"CUPTI's headers ({_CUPTI_HEADER}) and CUDA's ({_CUDA_HEADER}) are not"
        help = install_hint("capture")
        if named:
            raise HeadersMissing(f"{missing} both in {named}, which CUDA_HOME names", f"correct or unset it; or {help}")
        raise HeadersMissing(f"{missing} found", f"{help}; or name a CUDA toolkit in CUDA_HOME")
    return toolkit


def _wheel(name: str) -> list[Path]:
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:
        return []
    return [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]


def _toolkit(folders: list[Path]) -> Toolkit | None:
    includes = [_holder([folder / "include" for folder in folders], name) for name in (_CUPTI_HEADER, _CUDA_HEADER)]
    found = [folder for folder in includes if folder is not None]
    if len(found) != len(includes):
        return None
    libraries = [folder / library for folder in folders for library in ("lib64", "lib")]
    holders = ((_holder(libraries, name), name) for name in _LIBRARIES)
    library = next((folder / name for folder, name in holders if folder is not None), None)
    return Toolkit(tuple(dict.fromkeys(found)), library)


def _holder(folders: list[Path], name: str) -> Path | None:
    return next((folder for folder in folders if (folder / name).is_file()), None)
