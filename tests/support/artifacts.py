"""Artifact folders for tests: a manifest, C kernels compiled for this machine, weights."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

import kern.device.host
from kern.device.host.target import host_target
from kern.manifest.types import Kernel, Manifest, Step
from kern.manifest.writing import write

SUPPORT = Path(__file__).parent
INCLUDE = Path(kern.device.host.__file__).parent


@cache
def compiled(source: str) -> bytes:
    """The shared object of C source text that includes kern_host.h."""
    with tempfile.TemporaryDirectory() as directory:
        c_file, module = Path(directory, "kernels.c"), Path(directory, "kernels.so")
        c_file.write_text(source)
        target = f'-DKERN_TARGET="{host_target()}"'
        flags = ["-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", f"-I{INCLUDE}", target]
        subprocess.run(["cc", *flags, "-o", module, c_file], check=True)
        return module.read_bytes()


def toy_kernels() -> bytes:
    """The module of toy_kernels.c."""
    return compiled((SUPPORT / "toy_kernels.c").read_text())


def pinned(manifest: Manifest, modules: Mapping[str, bytes]) -> Manifest:
    """The manifest with the hash of each module at the steps that name it."""

    def step(step: Step) -> Step:
        if step.cubin not in modules:
            return step
        return step.model_copy(update={"sha256": hashlib.sha256(modules[step.cubin]).hexdigest()})

    def kernel(kernel: Kernel) -> Kernel:
        steps = tuple(step(one) for one in kernel.impl.steps)
        return kernel.model_copy(update={"impl": kernel.impl.model_copy(update={"steps": steps})})

    kernels = {name: kernel(entry) for name, entry in manifest.kernels.items()}
    return manifest.model_copy(update={"kernels": kernels})


def write_artifact(
    folder: Path,
    manifest: Manifest,
    modules: Mapping[str, bytes],
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> Path:
    """Write a folder whose manifest is pinned to `modules`; returns `folder`."""
    (folder / "kernels").mkdir(parents=True)
    for name, image in modules.items():
        (folder / "kernels" / name).write_bytes(image)
    (folder / "manifest.json").write_text(write(pinned(manifest, modules)))
    if weights is not None:
        (folder / "weights.safetensors").write_bytes(save(dict(weights)))
    return folder
