"""What the GPU tests share: a device or the reason to skip, and CUDA C++ compiled on the spot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kern.device.base import DeviceUnavailable, Stream

if TYPE_CHECKING:
    from kern.device.cuda.device import CudaDevice

Compile = Callable[[str], bytes]


@pytest.fixture
def device(gpu: CudaDevice) -> Iterator[CudaDevice]:
    """A separate device object for the test."""
    device = type(gpu)(0)
    yield device
    device.close()


@pytest.fixture
def stream(device: CudaDevice) -> Stream:
    """A stream of that device."""
    return device.stream()


@pytest.fixture(scope="session")
def compile_cuda(gpu: CudaDevice) -> Compile:
    """CUDA C++ → a cubin for this GPU."""
    from kern.toolchain.nvrtc import compile_cubin

    return cache(lambda source: compile_cubin(source, "test.cu", gpu.target))


@pytest.fixture(scope="session")
def cublaslt(gpu: CudaDevice) -> None:
    """The library behind the built-in operators, or the reason to skip."""
    from kern.device.cuda import cublaslt

    try:
        cublaslt.version()
    except DeviceUnavailable as error:
        pytest.skip(error.message)


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the session's own: no test reads or writes the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder
