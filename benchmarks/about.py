"""The head of every result: when, where, on what and with which command it was measured."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = (
    *("kern-runtime", "numpy", "pytest", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cublas"),
    *("nvidia-cuda-cupti", "torch", "vllm"),
)
NOT_RECORDED = "not recorded"


def about(command: Sequence[str]) -> dict[str, object]:
    """The date, the machine, the commit, versions, the command, and whether tracked files differ from the commit."""
    commit, dirty = source()
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": machine(),
        "commit": commit,
        "versions": versions(),
        "command": shlex.join(command),
        "dirty": dirty,
    }


def machine() -> str:
    """The GPUs with their driver, the processor and the system."""
    gpus = _said(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    named = [f"{name}, driver {driver}" for name, driver in (gpu.split(", ") for gpu in gpus)]
    model = next((line.partition(": ")[2] for line in _cpuinfo() if line.startswith("model name")), platform.machine())
    processors = f"{len(os.sched_getaffinity(0))} processors of {model}"
    return "; ".join([*named, processors, f"{platform.system()} {platform.release()}"])


def source() -> tuple[str, bool | str]:
    """The commit, and whether tracked files differ from it.

    KERN_COMMIT says it for a copy of the tree without its history.
    """
    named = os.environ.get("KERN_COMMIT")
    commit = [] if named else _said(["git", "-C", str(ROOT), "rev-parse", "HEAD"])
    if not commit:
        return named or NOT_RECORDED, NOT_RECORDED
    return commit[0], bool(_said(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"]))


def versions() -> dict[str, str]:
    """Python's, and those of the packages that a result may depend on, where they are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def _said(command: Sequence[str]) -> list[str]:
    """The lines that a program prints; none where it does not run, or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return []
    return [] if done.returncode else done.stdout.splitlines()
