"""The CUDA library without a GPU: every kernel compiles for each architecture and agrees with its declaration."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

import pytest

from kern.artifact.abi_check import errors
from kern.artifact.errors import UnknownTarget
from kern.artifact.modules import describe
from kern.artifact.targets import parse
from kern.kernels.compile_cuda import compile_cuda_modules
from kern.kernels.cuda_library import cuda_kernels
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.cuda_sizes import Round, Sizes, UnsupportedSizes
from kern.kernels.interfaces import INTERFACES
from kern.manifest.types import Kernel
from kern.toolchain import cuda_headers
from kern.toolchain.nvrtc import CudaCompilerMissing

TINY = Sizes(hidden=128, ffn=256, q_heads=4, kv_heads=2, head_dim=64)
SMOLLM2 = Sizes(hidden=576, ffn=1536, q_heads=9, kv_heads=3, head_dim=64, sequences=3)
QWEN3_4B = Sizes(hidden=2560, ffn=9728, q_heads=32, kv_heads=8, head_dim=128, sequences=64)


PLANS = {
    "sm_80": CudaPlan("sm_80", TINY, round=Round(8, 96, 96)),
    "sm_90a": CudaPlan("sm_90a", QWEN3_4B, round=Round(8, 9728, 256)),
    "sm_100": CudaPlan("sm_100", SMOLLM2),
    "sm_80 again": CudaPlan("sm_80", TINY, round=Round(8, 96, 96)),
}


@cache
def compiled(name: str) -> Mapping[str, bytes]:
    """The modules of a plan, compiled in a process without earlier state, so that no order leaves a trace in them."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(compile_cuda_modules, PLANS[name]).result()


def library(plan: CudaPlan, images: Mapping[str, bytes]) -> dict[str, Kernel]:
    return cuda_kernels(plan, {n: hashlib.sha256(i).hexdigest() for n, i in images.items()})


@pytest.mark.parametrize(
    "target",
    [pytest.param("sm_80", marks=pytest.mark.slow), "sm_90a", pytest.param("sm_100", marks=pytest.mark.slow)],
)
def test_every_step_fits_its_module(target: str):
    plan, images = PLANS[target], compiled(target)
    modules = {n: describe(n, image, hashlib.sha256(image).hexdigest()) for n, image in images.items()}
    declared = set()
    for kernel in library(plan, images).values():
        for step in kernel.impl.steps:
            if step.operator:
                continue
            assert step.cubin is not None
            module = modules[step.cubin]
            assert step.sha256 == module.sha256
            assert isinstance(step.shared_mem, int)
            assert not list(errors(step, module, module.kernels[step.symbol], step.shared_mem, ()))
            assert not step.pdl or parse(target).number >= 90
            declared.add((step.cubin, step.symbol))
    assert {module.target for module in modules.values()} == {target}
    assert declared == {(name, symbol) for name, module in modules.items() for symbol in module.kernels}


@pytest.mark.slow
def test_the_same_source_gives_the_same_bytes():
    assert compiled("sm_80") == compiled("sm_80 again")


def _hashes() -> dict[str, str]:
    return defaultdict(lambda: "0" * 64)


def test_every_entry_has_its_interface():
    kernels = cuda_kernels(CudaPlan("sm_90a", TINY, round=Round(8, 256, 64)), _hashes())
    assert all(kernel.params == tuple(INTERFACES[name].values()) for name, kernel in kernels.items())


def test_fewer_rows_share_a_reading_where_shared_memory_is_short():
    assert CudaPlan("sm_90a", QWEN3_4B).rows == 8
    assert CudaPlan("sm_89", QWEN3_4B).rows == 4
    assert CudaPlan("sm_90a", SMOLLM2).rows == 4
    assert CudaPlan("sm_90a", TINY).rows == 1


@pytest.mark.parametrize(("target", "rank", "slots"), [("sm_80", 256, 5), ("sm_89", 256, 3), ("sm_90a", 32, 16)])
def test_the_ring_of_a_markov_head_is_as_deep_as_memory_allows(target: str, rank: int, slots: int):
    plan = CudaPlan(target, TINY, round=Round(8, 256, rank))
    assert plan.markov_slots == slots
    assert "markov_argmax" in cuda_kernels(plan, _hashes())


@pytest.mark.parametrize(("target", "rank"), [("sm_90a", 48), ("sm_90a", 544), ("sm_89", 512)])
def test_a_markov_head_that_the_kernel_does_not_take_is_left_to_others(target: str, rank: int):
    kernels = cuda_kernels(CudaPlan(target, TINY, round=Round(8, 256, rank)), _hashes())
    assert "markov_argmax" not in kernels
    assert {"gather_bf16", "matmul_f32", "add_argmax"} <= set(kernels)


@pytest.mark.parametrize("target", ["sm_75", "sm_9", "x86-64-v3", "sm_90b"])
def test_an_unknown_target_is_refused(target: str):
    with pytest.raises(UnknownTarget, match=target):
        CudaPlan(target, TINY)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("head_dim", {"head_dim": 80}),
        ("hidden", {"hidden": 100}),
        ("ffn", {"ffn": 48}),
        ("query heads", {"q_heads": 64}),
    ],
)
def test_sizes_that_the_kernels_do_not_take(name: str, sizes: dict[str, int]):
    with pytest.raises(UnsupportedSizes, match=name):
        Sizes(**{"hidden": 128, "ffn": 256, "q_heads": 4, "kv_heads": 2, "head_dim": 64, **sizes})


def test_no_headers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cuda_headers, "find_spec", lambda name: None)
    with pytest.raises(CudaCompilerMissing) as missing:
        compile_cuda_modules(CudaPlan("sm_90a", TINY))
    assert "-e '.[cuda]'" in missing.value.help


def test_a_width_that_leaves_no_room_for_weights_is_refused() -> None:
    with pytest.raises(UnsupportedSizes, match=r"53248 elements .* sm_120"):
        CudaPlan("sm_120", Sizes(4096, 53248, 32, 8, 128))
    assert CudaPlan("sm_90a", Sizes(4096, 53248, 32, 8, 128)).rows >= 1


def test_a_round_that_the_kernels_do_not_take_is_refused() -> None:
    with pytest.raises(UnsupportedSizes, match="33 rows"):
        Round(33, 256, 32)
    with pytest.raises(UnsupportedSizes, match="draft's ffn is 104"):
        Round(8, 104, 32)
    assert CudaPlan("sm_90a", TINY, round=Round(32, 256, 32)).defines()["ROUND_ROWS"] == 32


def test_without_rounds_there_is_nothing_for_their_rows() -> None:
    kernels = cuda_kernels(CudaPlan("sm_90a", TINY), _hashes())
    of_rounds = "_rows", "_draft", "_spec", "residual_", "markov_", "accept", "lay_round"
    steps = {"gather_rows", "lay_rows"}
    assert not [name for name in kernels.keys() - steps if any(part in name for part in of_rounds)]
