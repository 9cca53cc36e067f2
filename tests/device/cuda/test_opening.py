"""Opening a GPU by name on machines that lack what it needs: driver, bindings, GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kern.device import open_device
from kern.device.base import DeviceUnavailable

NAMES = ("cuda", "cuda:0", "cuda:12")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The bindings, with a driver that knows one GPU."""
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    success = driver.CUresult.CUDA_SUCCESS
    monkeypatch.setattr(driver, "cuInit", lambda flags: (success,))
    monkeypatch.setattr(driver, "cuDeviceGetCount", lambda: (success, 1))
    monkeypatch.setattr(driver, "cuDeviceGet", lambda ordinal: (success, driver.CUdevice(ordinal)))
    monkeypatch.setattr(driver, "cuGetErrorName", lambda status: (success, b"CUDA_ERROR_OF_THIS_TEST"))
    monkeypatch.setattr(driver, "cuGetErrorString", lambda status: (success, b"its text"))
    return driver


@pytest.mark.parametrize("name", NAMES)
def test_without_a_driver(driver: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def missing(flags: int) -> None:
        raise RuntimeError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(driver, "cuInit", missing)
    with pytest.raises(DeviceUnavailable, match="this machine has no NVIDIA driver") as caught:
        open_device(name)
    assert caught.value.exit_code == 2
    assert "NVIDIA GPU" in caught.value.help


@pytest.mark.parametrize("name", NAMES)
def test_with_a_driver_that_finds_no_gpu(driver: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(driver, "cuInit", lambda flags: (driver.CUresult.CUDA_ERROR_NO_DEVICE,))
    with pytest.raises(DeviceUnavailable, match=r"cuInit: CUDA_ERROR_OF_THIS_TEST \(its text\)"):
        open_device(name)


@pytest.mark.parametrize("ordinal", [1, 12, 999999999])
def test_an_unknown_gpu_number_is_refused(driver: Any, ordinal: int) -> None:
    with pytest.raises(DeviceUnavailable, match=f"there is no GPU cuda:{ordinal}; .* are: cuda:0$"):
        open_device(f"cuda:{ordinal}")


def test_a_gpu_that_another_process_uses_exclusively(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = driver.CUresult.CUDA_ERROR_DEVICE_UNAVAILABLE
    monkeypatch.setattr(driver, "cuDevicePrimaryCtxRetain", lambda device: (refused, None))
    with pytest.raises(DeviceUnavailable, match=r"cuda:0 cannot be used: cuDevicePrimaryCtxRetain"):
        open_device("cuda")


@pytest.mark.parametrize("name", NAMES)
def test_without_the_bindings(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for module in [each for each in sys.modules if each.startswith("kern.device.cuda")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(DeviceUnavailable, match="needs cuda-bindings") as caught:
        open_device(name)
    assert "-e '.[cuda]'" in caught.value.help
