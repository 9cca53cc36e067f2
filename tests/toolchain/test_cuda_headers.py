"""Where headers are found, and that those of two installations are never mixed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kern.capture import recorder_library
from kern.capture.errors import RecorderNotBuilt
from kern.toolchain.cuda_headers import HeadersMissing, find_toolkit

HEADERS = ("cupti_callbacks.h", "cuda.h")


@pytest.fixture
def without_wheels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kern.toolchain.cuda_headers.SYSTEM_TOOLKIT", tmp_path / "nowhere")
    monkeypatch.setitem(sys.modules, "nvidia", None)
    for name in [name for name in sys.modules if name.startswith("nvidia.")]:
        monkeypatch.delitem(sys.modules, name)


def headers(folder: Path, *names: str, text: str = "") -> None:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(text)


def test_the_wheels_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    headers(tmp_path / "include", *HEADERS)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    toolkit = find_toolkit()
    assert tmp_path not in toolkit.includes[0].parents
    assert toolkit.library is not None
    assert toolkit.library.name.startswith("libcupti.so.")


@pytest.mark.parametrize("cupti", ["include", "extras/CUPTI/include", "targets/x86_64-linux/include"])
def test_a_toolkit_has_cupti_in_one_of_its_places(
    without_wheels: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cupti: str
) -> None:
    headers(tmp_path / cupti, "cupti_callbacks.h")
    (tmp_path / "include").mkdir(exist_ok=True)
    (tmp_path / "include" / "cuda.h").touch()
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libcupti.so.12").touch()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    toolkit = find_toolkit()
    assert toolkit.includes == tuple(dict.fromkeys([tmp_path / cupti, tmp_path / "include"]))
    assert toolkit.library == tmp_path / "lib64" / "libcupti.so.12"


@pytest.mark.parametrize("name", HEADERS)
def test_half_of_the_headers_is_not_enough(
    without_wheels: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    headers(tmp_path / "include", name)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(HeadersMissing, match=r"cupti_callbacks\.h.*\[capture\]"):
        find_toolkit()


@pytest.mark.parametrize("made", ["nothing", "no folder", "a file", "half of it"])
def test_a_wrong_toolkit_is_named_and_not_replaced_by_another(
    without_wheels: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, made: str
) -> None:
    headers(tmp_path / "nowhere" / "include", *HEADERS)
    named = tmp_path / "cuda"
    if made == "nothing":
        named.mkdir()
    elif made == "a file":
        named.touch()
    elif made == "half of it":
        headers(named / "include", HEADERS[0])
    monkeypatch.setenv("CUDA_HOME", str(named))
    with pytest.raises(HeadersMissing, match=r"not both in .*/cuda, which CUDA_HOME names") as caught:
        find_toolkit()
    assert "unset it" in caught.value.help
    assert "[capture]" in caught.value.help


def test_the_toolkit_of_the_system_comes_last(
    without_wheels: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CUDA_HOME", raising=False)
    headers(tmp_path / "nowhere" / "include", *HEADERS)
    assert find_toolkit().includes == (tmp_path / "nowhere" / "include",)
    assert find_toolkit().library is None


def test_headers_that_are_too_old_are_named(
    without_wheels: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    names = ("cupti_callbacks.h", "cupti_driver_cbid.h", "generated_cuda_meta.h")
    headers(tmp_path / "include", *names)
    (tmp_path / "include" / "cuda.h").write_text("#define CUDA_VERSION 11080\n")
    with pytest.raises(RecorderNotBuilt, match=r"CUDA 12\.8 or later"):
        recorder_library(find_toolkit(), ["cc"])
    assert not list((tmp_path / "cache" / "kern").iterdir())
