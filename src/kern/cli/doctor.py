"""`kern doctor`: what this machine has, and what is missing for what."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
import textwrap
from dataclasses import asdict, dataclass

from kern.capture import find_toolkit
from kern.capture.errors import HeadersMissing
from kern.cli.json_text import json_text
from kern.device import open_device
from kern.device.base import DeviceError
from kern.manifest.errors import install_hint
from kern.models.kernels.compile_host import CompilerMissing, compiler_command


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked for: what was found, or what to do to have it."""

    name: str
    found: str | None
    needed_for: str
    help: str


LIBRARIES = {
    "gguf": ("building from GGUF files", install_hint("gguf")),
    "cuda-bindings": ("building and running for a GPU", install_hint("cuda")),
    "nvidia-cuda-nvrtc": ("building for a GPU", install_hint("cuda")),
    "nvidia-cuda-runtime": ("building for a GPU (headers)", install_hint("cuda")),
    "nvidia-cuda-cccl": ("building for a GPU (headers)", install_hint("cuda")),
    "nvidia-cublas": ("built-in matrix products on a GPU", install_hint("cuda")),
}


def examine() -> list[Finding]:
    """Look at the machine; nothing is changed and nothing is fetched."""
    return [
        Finding("python", platform.python_version(), "everything", ""),
        _device("host", "running on the processor"),
        _compiler(),
        *(_library(name, *rest) for name, rest in LIBRARIES.items()),
        *_recording(),
        _driver(),
        _device("cuda", "running on a GPU"),
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
    name, purpose = "C compiler", "building for the host, and recording"
    try:
        command = compiler_command()
    except CompilerMissing as error:
        return Finding(name, None, purpose, str(error))
    said = _said([*command, "--version"])
    return Finding(name, said[0] if said else None, purpose, f"`{command[0]}` does not run: name another one in CC")


def _said(command: list[str]) -> list[str]:
    """The lines that a program prints; none where it does not run, or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError:
        return []
    return [] if done.returncode else done.stdout.splitlines()


def _library(name: str, purpose: str, help: str) -> Finding:
    try:
        return Finding(name, importlib.metadata.version(name), purpose, help)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, None, purpose, help)


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


def _driver() -> Finding:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    help = "install NVIDIA's driver on a machine with a GPU"
    return Finding("NVIDIA driver", "; ".join(_said(query)) or None, "running on a GPU", help)


def doctor(as_json: bool) -> None:
    """Print the findings."""
    findings = examine()
    if as_json:
        print(json_text([asdict(finding) for finding in findings], indent=1))
        return
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        if finding.found is not None:
            print(f"  {finding.name:<{width}}  {finding.found}")
        else:
            print(f"- {finding.name:<{width}}  missing, needed for {finding.needed_for}")
            print(_beneath(finding.help, " " * (width + 4)))


def _beneath(text: str, indent: str) -> str:
    """What to do, below what is missing, as wide as the terminal; no word is cut."""
    columns = max(shutil.get_terminal_size((100, 24)).columns, 60)
    return textwrap.fill(
        text, columns, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
