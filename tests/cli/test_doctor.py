"""`kern doctor` and the hints on what to install: true for a checkout and for a wheel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conftest import Kern
from kern.cli import doctor
from kern.device.base import Device
from kern.manifest import errors
from kern.manifest.errors import install_hint
from kern.toolchain.nvrtc import CudaCompilerMissing


def findings(kern: Kern) -> dict[str, dict[str, str | None]]:
    return {finding["name"]: finding for finding in kern("doctor", "--json").json}


@pytest.mark.parametrize(
    ("source", "hint"),
    [(True, "in kern's source folder: pip install -e '.[gguf]'"), (False, "pip install 'kern-runtime[gguf]'")],
)
def test_what_to_install_depends_on_how_kern_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: bool, hint: str
) -> None:
    if source:
        (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(errors, "_SOURCE", tmp_path)
    assert install_hint("gguf") == hint


def test_this_checkout_is_one() -> None:
    assert "-e" in install_hint("cuda")


def test_a_compiler_that_compiles_nothing_is_missing(
    kern: Kern, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\ntest $1 = --version && echo cc 4.2 && exit\necho unknown -march >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    found = findings(kern)["C compiler"]
    assert found["found"] is None
    assert "unknown -march" in str(found["help"])
    assert "gcc 11" in str(found["help"])


def missing() -> None:
    raise CudaCompilerMissing("NVRTC is not installed", "install it")


def loads() -> None:
    pass


@pytest.mark.parametrize(
    ("load", "version", "found"),
    [(loads, "13.1", "13.1"), (loads, None, "from the system's CUDA toolkit"), (missing, "13.1", None)],
)
def test_a_library_is_found_if_it_loads(
    kern: Kern, monkeypatch: pytest.MonkeyPatch, load: Callable[[], None], version: str | None, found: str | None
) -> None:
    monkeypatch.setattr(doctor, "_load_nvrtc", load)
    monkeypatch.setattr(doctor, "_version", lambda name: version)
    assert findings(kern)["nvidia-cuda-nvrtc"]["found"] == found


class Opened:
    description = "NVIDIA H200"

    def close(self) -> None:
        pass


def test_a_gpu_that_opens_has_a_driver_without_nvidia_smi(kern: Kern, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_device(name: str) -> Device | Opened:
        return Opened()

    monkeypatch.setattr(doctor, "open_device", open_device)
    monkeypatch.setenv("PATH", "/nonexistent")
    found = findings(kern)
    assert found["device cuda"]["found"] == "NVIDIA H200"
    assert found["NVIDIA driver"]["found"] == "in use; nvidia-smi does not run"


@pytest.mark.parametrize("columns", [80, 120])
def test_no_line_of_the_findings_is_wider_than_the_terminal(
    kern: Kern, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(doctor, "_load_nvrtc", missing)
    out = kern("doctor").out
    assert "missing, needed for building for a GPU" in out
    hints = [line for line in out.splitlines() if line.startswith("   ")]
    assert max(map(len, hints)) <= columns
