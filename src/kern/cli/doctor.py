"""`kern doctor`: what this machine has, and what is missing for what."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass

from kern.cli.outputs import json_text
from kern.device import open_device
from kern.device.base import DeviceError
from kern.device.host.target import host_target
from kern.kernels.compile_host import check_host_compiler
from kern.manifest.errors import KernError, install_hint
from kern.toolchain.cc import compiler_command
from kern.toolchain.cuda_headers import HeadersMissing, find_toolkit


@dataclass(frozen=True, slots=True)
class Finding:
    """One requirement: what was found, or how to install it."""

    name: str
    found: str | None
    needed_for: str
    help: str


def findings() -> list[Finding]:
    """Look at the machine. Nothing is changed or downloaded."""
    cuda = _device("cuda", "running on a GPU")
    return [
        Finding("python", platform.python_version(), "everything", ""),
        _device("host", "running on the processor"),
        _compiler(),
        _package("gguf", "building from GGUF files", "gguf"),
        _package("cuda-bindings", "building and running for a GPU", "cuda"),
        _library("nvidia-cuda-nvrtc", "building for a GPU", _load_nvrtc),
        _package("nvidia-cuda-runtime", "building for a GPU (headers)", "cuda"),
        _package("nvidia-cuda-cccl", "building for a GPU (headers)", "cuda"),
        _library("nvidia-cublas", "built-in matrix products on a GPU", _load_cublas),
        *_recording(),
        _driver(cuda),
        cuda,
    ]


def _device(name: str, purpose: str) -> Finding:
    try:
        device = open_device(name)
    except DeviceError as error:
        return Finding(f"device {name}", None, purpose, str(error))
    try:
        return Finding(f"device {name}", device.description, purpose, "")
    finally:
        device.close()


def _compiler() -> Finding:
    """The C compiler, if it compiles a test program."""
    name, purpose = "C compiler", "building for the host, and recording"
    try:
        check_host_compiler(host_target())
    except KernError as error:
        return Finding(name, None, purpose, str(error))
    lines = _output([*compiler_command(), "--version"])
    return Finding(name, lines[0] if lines else "of an unknown version", purpose, "")


def _output(command: list[str]) -> list[str]:
    """The lines that a program prints; empty if it does not run, or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        return []
    return [] if done.returncode else done.stdout.splitlines()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package(name: str, purpose: str, extra: str) -> Finding:
    return Finding(name, _version(name), purpose, install_hint(extra))


def _library(name: str, purpose: str, load: Callable[[], object]) -> Finding:
    """A CUDA library, if it loads: from its package or from a toolkit on the system."""
    try:
        load()
    except (KernError, ImportError, OSError):
        return Finding(name, None, purpose, install_hint("cuda"))
    return Finding(name, _version(name) or "from the system's CUDA toolkit", purpose, "")


def _load_nvrtc() -> None:
    from kern.toolchain.nvrtc import architectures

    architectures()


def _load_cublas() -> None:
    from kern.device.cuda.cublaslt import version

    version()


def _recording() -> list[Finding]:
    help = install_hint("capture")
    headers, library = None, None
    try:
        toolkit = find_toolkit()
    except HeadersMissing as error:
        help = str(error)
    else:
        headers, library = str(toolkit.includes[0]), None if toolkit.library is None else str(toolkit.library)
    return [
        Finding("CUPTI headers", headers, "recording", help),
        Finding("CUPTI library", library, "recording programs that bring no libcupti", help),
    ]


def _driver(cuda: Finding) -> Finding:
    """NVIDIA's driver, as nvidia-smi describes it; a device that opens has one even without nvidia-smi."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    found = "; ".join(_output(query)) or (None if cuda.found is None else "in use; nvidia-smi does not run")
    return Finding("NVIDIA driver", found, "running on a GPU", "use a machine with an NVIDIA GPU and its driver")


def doctor(as_json: bool) -> None:
    """Print the findings."""
    found = findings()
    if as_json:
        print(json_text([asdict(finding) for finding in found], indent=1))
        return
    width = max(len(finding.name) for finding in found)
    for finding in found:
        if finding.found is not None:
            print(f"  {finding.name:<{width}}  {finding.found}")
        else:
            print(f"- {finding.name:<{width}}  missing, needed for {finding.needed_for}")
            print(_beneath(finding.help, " " * (width + 4)))


def _beneath(text: str, indent: str) -> str:
    """The help below a missing requirement, as wide as the terminal; words are not broken."""
    columns = max(shutil.get_terminal_size((100, 24)).columns, 60)
    return textwrap.fill(
        text, columns, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
