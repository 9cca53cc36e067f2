"""The products of a step of many rows on a GPU against float64, and how they are divided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pytest

from kern.device.base import Device
from kern.kernels.cuda_library import cuda_kernels
from kern.kernels.cuda_plan import CudaPlan
from kern.kernels.cuda_sizes import Sizes
from kernels.cuda_harness import CudaLibrary, libraries_of
from kernels.harness import bf16
from kernels.test_cuda_kernels import EPS, near, product, run_product, silu

F32, F64 = np.float32, np.float64
FREE = ["rms_matmul_wide", "rms_matmul_f32_wide", "rms_gate_up_wide"]
ADDED = ["output_matmul_add_wide", "down_matmul_add_wide"]
ROWS = [1, 9, 16, 17, 31, 32, 33, 64, 65, 128, 150]
SIZES = {
    "whole stages": Sizes(hidden=512, ffn=1536, q_heads=8, kv_heads=2, head_dim=128, sequences=64),
    "stages that are not whole": Sizes(hidden=576, ffn=608, q_heads=9, kv_heads=3, head_dim=64, sequences=9),
    "depth for one block only": Sizes(hidden=64, ffn=32, q_heads=1, kv_heads=1, head_dim=64, sequences=64),
    "a residual stream in passes": Sizes(hidden=12320, ffn=288, q_heads=2, kv_heads=1, head_dim=64, sequences=64),
    "wide": Sizes(hidden=2560, ffn=9728, q_heads=32, kv_heads=8, head_dim=128, sequences=64),
}


@pytest.fixture(scope="module")
def libraries(device: Device) -> Mapping[str, CudaLibrary]:
    plans = {name: CudaPlan(device.target, sizes) for name, sizes in SIZES.items()}
    if not all(plan.wide for plan in plans.values()):
        pytest.skip(f"no products of many rows on {device.target}")
    return libraries_of(device, plans)


@pytest.fixture(scope="module", params=SIZES)
def cuda(libraries: Mapping[str, CudaLibrary], request: pytest.FixtureRequest) -> CudaLibrary:
    return libraries[request.param]


@pytest.mark.gpu
@pytest.mark.parametrize("entry", FREE)
@pytest.mark.parametrize("n", [1, 77, 768, 5003])
def test_products(cuda, rng, entry, n):
    for m in ROWS:
        p = product(cuda, rng, entry, m, n)
        run_product(cuda, entry, p)
        want = p["x"].astype(F64) @ p["w"].astype(F64).T
        want *= (p["squares"].astype(F64).sum(axis=1, keepdims=True) / cuda.sizes.hidden + EPS) ** -0.5
        if "gate_up" in entry:
            gate, up = np.split(want, 2, axis=1)
            want = silu(gate) * up
        near(p["c"], want)


@pytest.mark.gpu
@pytest.mark.parametrize("entry", ADDED)
@pytest.mark.parametrize("m", ROWS)
def test_products_that_are_added(cuda, rng, entry, m):
    p = product(cuda, rng, entry, m, cuda.sizes.hidden)
    before = p["residual"].copy()
    run_product(cuda, entry, p)
    near(p["residual"] - before, p["x"].astype(F64) @ p["w"].astype(F64).T)
    assert np.array_equal(p["c"].view(np.uint16), bf16(p["residual"] * p["weight"].astype(F32)).view(np.uint16))
    np.testing.assert_allclose(p["squares"].sum(axis=1), (p["residual"].astype(F64) ** 2).sum(axis=1), rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("entry", [*FREE, *ADDED])
def test_a_row_has_the_same_bits_among_any_number_of_rows(cuda, rng, entry):
    p = product(cuda, rng, entry, 100, cuda.sizes.hidden if entry in ADDED else 300)
    before = {name: value.copy() for name, value in p.items()}
    run_product(cuda, entry, p)
    for rows in (slice(0, 1), slice(5, 17), slice(2, 32), slice(40, 100)):
        some = {name: value if name in ("weight", "w") else value[rows].copy() for name, value in before.items()}
        run_product(cuda, entry, some)
        assert some["c"].tobytes() == p["c"][rows].tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("entry", ["rms_matmul_wide", "down_matmul_add_wide"])
def test_a_row_that_is_unusable_is_the_only_one(cuda, rng, entry):
    p = product(cuda, rng, entry, 40, cuda.sizes.hidden)
    p["x"][13, 7] = np.nan
    run_product(cuda, entry, p)
    assert np.flatnonzero(np.isnan(p["c"].astype(F32)).any(axis=1)).tolist() == [13]


@pytest.mark.parametrize("target", ["sm_90a", "sm_90", "sm_100", "sm_103"])
@pytest.mark.parametrize("sequences", [1, 8, 9, 64, 256])
def test_entries_for_many_rows_are_there_for_more_than_eight_sequences(target: str, sequences: int):
    plan = CudaPlan(target, Sizes(512, 1536, 8, 2, 128, sequences))
    kernels = cuda_kernels(plan, defaultdict(lambda: "0" * 64))
    assert {name for name in kernels if name.endswith("_wide")} == ({*FREE, *ADDED} if sequences > 8 else set())
    assert plan.has("wide") == (sequences > 8)


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_120"])
def test_without_clusters_or_room_for_both_operands_there_are_none(target: str):
    plan = CudaPlan(target, Sizes(512, 1536, 8, 2, 128, sequences=64))
    assert not [name for name in cuda_kernels(plan, defaultdict(lambda: "0" * 64)) if name.endswith("_wide")]
    assert not plan.has("wide")


def test_a_clusters_columns_are_all_in_registers_where_they_can_be():
    divisions = CudaPlan("sm_90a", SIZES["wide"]).wide
    columns = {"rms_matmul_wide": 6144, "rms_gate_up_wide": 2 * 9728, **dict.fromkeys(ADDED, 2560)}
    for name, count in columns.items():
        of = divisions[name]
        block = 16 * of.tiles * 4 // of.deep
        assert 0 <= block * (of.blocks // of.split) - count <= 0.06 * count
        assert of.blocks % (of.split * 4) == 0
    assert divisions["rms_matmul_f32_wide"].blocks == 132
