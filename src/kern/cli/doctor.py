"""`kern doctor`: what this machine has, and what is missing for what."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass

from kern.device import open_device
from kern.device.base import DeviceUnavailable


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked for: what was found, or what to do to have it."""

    name: str
    found: str | None
    needed_for: str
    help: str


LIBRARIES = {
    "gguf": ("building from GGUF files", "pip install 'kern-runtime[gguf]'"),
    "cuda-bindings": ("building and running for a GPU", "pip install 'kern-runtime[cuda]'"),
    "nvidia-cuda-nvrtc": ("building for a GPU", "pip install 'kern-runtime[cuda]'"),
    "nvidia-cublas": ("built-in matrix products on a GPU", "pip install 'kern-runtime[cuda]'"),
    "nvmath-python": ("built-in matrix products on a GPU", "pip install 'kern-runtime[cuda]'"),
}


def examine() -> list[Finding]:
    """Look at the machine; nothing is changed and nothing is fetched."""
    return [
        Finding("python", platform.python_version(), "everything", ""),
        _device("host", "running on the processor"),
        _compiler(),
        *(_library(name, *rest) for name, rest in LIBRARIES.items()),
        _driver(),
        _device("cuda", "running on a GPU"),
    ]


def _device(name: str, purpose: str) -> Finding:
    try:
        device = open_device(name)
    except DeviceUnavailable as error:
        return Finding(f"device {name}", None, purpose, error.message)
    try:
        return Finding(f"device {name}", device.description, purpose, "")
    finally:
        device.close()


def _compiler() -> Finding:
    command = os.environ.get("CC", "cc").split()[0]
    path = shutil.which(command)
    help = "apt install gcc, or name a C compiler in CC"
    if path is None:
        return Finding("C compiler", None, "building for the host", help)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    version = done.stdout.splitlines()[0] if done.stdout else path
    return Finding("C compiler", version, "building for the host", help)


def _library(name: str, purpose: str, help: str) -> Finding:
    try:
        return Finding(name, importlib.metadata.version(name), purpose, help)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, None, purpose, help)


def _driver() -> Finding:
    path = shutil.which("nvidia-smi")
    help = "install NVIDIA's driver on a machine with a GPU"
    if path is None:
        return Finding("NVIDIA driver", None, "running on a GPU", help)
    query = ["--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    done = subprocess.run([path, *query], capture_output=True, text=True, check=False)
    return Finding("NVIDIA driver", "; ".join(done.stdout.splitlines()) or None, "running on a GPU", help)


def doctor(as_json: bool) -> None:
    """Print the findings."""
    findings = examine()
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
        return
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        if finding.found is not None:
            print(f"  {finding.name:<{width}}  {finding.found}")
        else:
            print(f"- {finding.name:<{width}}  missing, needed for {finding.needed_for}: {finding.help}")
