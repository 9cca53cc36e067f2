"""What the benchmarks of single CUDA entries launch is there, and takes the arguments that they give."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kern.kernels.compile_cuda import SOURCES
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.cuda_sizes import Round, Sizes

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


class Nowhere:
    """A device that hands out addresses, and whose modules have every kernel."""

    def __init__(self) -> None:
        self.next = 1 << 40

    def alloc(self, size: int) -> Any:
        address, self.next = self.next, self.next + -(-size // 256) * 256
        return SimpleNamespace(address=address)

    def stream(self) -> Any:
        return SimpleNamespace(synchronize=lambda: None)

    def load_module(self, image: bytes) -> Any:
        return SimpleNamespace(function=lambda symbol: symbol)

    def zero(self, address: int, size: int, stream: Any) -> None: ...

    def write(self, address: int, data: memoryview, stream: Any) -> None: ...


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("cuda_entries")


def images(plan: CudaPlan) -> Mapping[str, bytes]:
    return {f"{name}.cubin": b"" for name in (*(path.stem for path in SOURCES.glob("*.cu")), *plan.variants)}


def test_each_call_of_a_rounds_rows(shared: Any) -> None:
    rows = importlib.import_module("cuda_rows")
    plan, gpu = CudaPlan("sm_90a", rows.SIZES, round=Round(rows.ROWS, rows.SIZES.ffn, 32)), shared.Gpu(Nowhere())
    layers = rows.Layers(gpu, shared.Entries(gpu, plan, images(plan)), context=100)

    assert all(len(layers.launches(call)) == 2 * rows.LAYERS for call in rows.CALLS)


def test_a_chain_of_drafts(shared: Any) -> None:
    chain = importlib.import_module("cuda_chain")
    plan, gpu = CudaPlan("sm_90a", chain.SIZES, round=Round(8, chain.SIZES.ffn, 64)), shared.Gpu(Nowhere())
    launches = chain.Chain(gpu, 1000, 64).launches(shared.Entries(gpu, plan, images(plan)))

    assert [launch.function for launch in launches] == ["markov_partial", "argmax_final"] * chain.BLOCK


def test_arguments_that_are_not_an_entrys(shared: Any) -> None:
    plan, gpu = CudaPlan("sm_90a", Sizes(64, 64, 1, 1, 64)), shared.Gpu(Nowhere())
    with pytest.raises(TypeError, match="rms_norm takes y, x, weight, hidden, eps, not y, x, hidden"):
        shared.Entries(gpu, plan, images(plan)).launches("rms_norm", {"y": 1, "x": 2, "hidden": 64}, tokens=1)
