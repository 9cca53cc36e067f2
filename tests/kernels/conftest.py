"""Fixtures: the kernel library compiled once, and its entries ready to run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kern.device.host.target import host_target
from kern.models.kernels.compile_host import compile_host_modules
from kernels.harness import Library

Run = Callable[..., None]


@pytest.fixture(scope="session")
def library() -> Library:
    return Library(compile_host_modules(host_target()))


@pytest.fixture
def run(library: Library) -> Run:
    return library.run


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


@pytest.fixture
def same(run: Run) -> Callable[..., None]:
    """Run an entry with 1, 2 and 3 threads from the same start: the written arrays must be equal byte for byte."""

    def check(entry: str, args: list, written: tuple[int, ...] = (0,), **options: int) -> None:
        start = {i: args[i].copy() for i in written}
        results = []
        for threads in (3, 2, 1):
            for i in written:
                args[i][...] = start[i]
            run(entry, *args, threads=threads, **options)
            results.append([args[i].tobytes() for i in written])
        assert results[0] == results[1] == results[2]

    return check
