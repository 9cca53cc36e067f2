"""Fixtures: the kernels compiled once for each instruction set that this machine runs or emulates; a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kern.device.host.target import host_target
from kern.kernels.interfaces import INTERFACES
from kernels import emulated
from kernels.harness import Library, compiled

if TYPE_CHECKING:
    from kern.device.cuda.device import CudaDevice

Run = Callable[..., None]

LEVELS = ["x86-64-v2", "x86-64-v3", "x86-64-v4"]
TARGETS = (
    [*LEVELS[: LEVELS.index(host_target()) + 1], pytest.param(emulated.TARGET, marks=pytest.mark.aarch64)]
    if host_target() in LEVELS
    else [host_target()]
)


@pytest.fixture(scope="module")
def device(gpu: CudaDevice) -> Iterator[CudaDevice]:
    """A device of a file's own: what its tests leave there goes with it."""
    device = type(gpu)(0)
    yield device
    device.close()


@pytest.fixture(scope="session")
def emulated_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    images = emulated.cross_compiled()
    emulator = emulated.Emulator(images, tmp_path_factory.mktemp("emulated"))
    yield Library(images, emulator.execute)
    emulator.close()


@pytest.fixture(params=TARGETS)
def library(request: pytest.FixtureRequest) -> Library:
    if request.param != emulated.TARGET or host_target() == emulated.TARGET:
        return compiled(request.param)
    library: Library = request.getfixturevalue("emulated_library")
    return library


@pytest.fixture
def run(library: Library) -> Run:
    return library.run


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


@pytest.fixture
def same(run: Run) -> Callable[..., None]:
    """Run an entry with 1 to 4 threads from the same start: what it writes must be equal byte for byte."""

    def check(entry: str, **arguments: Any) -> None:
        written = [arguments[name] for name, param in INTERFACES[entry].items() if param.writes]
        start = [array.copy() for array in written]
        results = []
        for threads in (4, 3, 2, 1):
            for array, before in zip(written, start, strict=True):
                array[...] = before
            run(entry, threads=threads, **arguments)
            results.append([array.tobytes() for array in written])
        assert results == results[:1] * 4

    return check
