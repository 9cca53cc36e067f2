"""The C compiler: what CC may say, and the errors for one that does not work."""

from __future__ import annotations

from pathlib import Path

import pytest

from kern.device.host.target import host_target
from kern.kernels.compile_host import compile_host_modules
from kern.toolchain.cc import CompilationFailed, CompilerMissing, compiler_command


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_cc_may_have_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "sh -c 'a b'")
    assert compiler_command() == ["sh", "-c", "a b"]
    monkeypatch.setenv("CC", "")
    assert compiler_command() == ["cc"]


@pytest.mark.parametrize("cc", ['"gcc', "/nonexistent/cc", "''", "no-such-compiler -m64", "/etc/passwd"])
def test_a_name_that_is_not_a_compiler_is_reported(cc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", cc)

    with pytest.raises(CompilerMissing, match="no C compiler") as caught:
        compile_host_modules(host_target())

    assert "name yours in CC" in caught.value.help


def test_a_file_that_does_not_run_is_not_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", str(script(tmp_path / "cc", "\x7fnot a program")))

    with pytest.raises(CompilerMissing, match="does not run"):
        compile_host_modules(host_target())


@pytest.mark.parametrize(("cc", "says"), [("true", "no file written"), ("false", "ended with 1")])
def test_a_compiler_that_writes_nothing_has_failed(cc: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", cc)

    with pytest.raises(CompilationFailed, match=says):
        compile_host_modules(host_target())


@pytest.mark.parametrize("cc", ["no-such-compiler", "not-a-program"])
def test_a_cross_compiler_that_does_not_run_is_missing(
    cc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path / "not-a-program", "\x7fnot a program")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", cc)
    other = "aarch64" if host_target() != "aarch64" else "x86-64-v3"

    with pytest.raises(CompilerMissing, match=f"`{cc}` (is not|does not)"):
        compile_host_modules(other)


def test_no_room_for_compiled_code_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))

    with pytest.raises(CompilationFailed, match="cannot be written"):
        compile_host_modules(host_target())
