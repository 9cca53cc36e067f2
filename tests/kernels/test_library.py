"""The library's declarations, and the compilation of the modules behind them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from kern.artifact.errors import UnknownTarget
from kern.device.host.target import host_target
from kern.kernels.compile_host import compile_host_modules
from kern.kernels.interfaces import INTERFACES
from kern.manifest.types import OPERATOR_PREFIX
from kern.toolchain.cc import CompilationFailed, CompilerMissing
from kernels.harness import Library, compiled


def strings(image: bytes, section: str) -> list[str]:
    found = ELFFile(io.BytesIO(image)).get_section_by_name(section)
    assert found is not None
    return found.data().rstrip(b"\0").decode().split("\0")


def test_every_entry_has_its_interface(library: Library):
    kernels = library.kernels(9, 3)
    assert all(kernel.params == tuple(INTERFACES[name].values()) for name, kernel in kernels.items())


def test_every_step_is_pinned_and_agrees_with_the_abi_string_of_its_module(library: Library):
    steps = [step for kernel in library.kernels(9, 3).values() for step in kernel.impl.steps]
    assert all(step.cubin and step.sha256 and not step.symbol.startswith(OPERATOR_PREFIX) for step in steps)
    declared = {(step.cubin, f"{step.symbol}({','.join(p.scalar or 'ptr' for p in step.params)})") for step in steps}
    exported = {(n, abi) for n, image in library.images.items() for abi in strings(image, ".kern.abi")}
    assert declared == exported


def test_each_module_says_what_it_was_compiled_for(library: Library, request: pytest.FixtureRequest):
    target = request.node.callspec.params["library"]
    assert {tuple(strings(image, ".kern.target")) for image in library.images.values()} == {(target,)}


def test_the_same_compiler_gives_the_same_bytes():
    assert compile_host_modules(host_target()) == compiled(host_target()).images


def test_no_compiler(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CC", "no-such-cc")
    with pytest.raises(CompilerMissing, match=r"no-such-cc.*apt install gcc"):
        compile_host_modules("x86-64-v2")


def test_a_compiler_that_refuses_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    refusing = tmp_path / "cc"
    refusing.write_text("#!/bin/sh\necho no OpenMP here >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("CC", str(refusing))
    with pytest.raises(CompilationFailed, match="no OpenMP here"):
        compile_host_modules("x86-64-v2")


def test_unknown_target():
    with pytest.raises(UnknownTarget, match="sm_90a"):
        compile_host_modules("sm_90a")
