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
from kern.kernels.cuda_wide import WIDE_TARGET
from kernels.cuda_harness import CudaLibrary, libraries_of
from kernels.harness import bf16
from kernels.test_cuda_kernels import EPS, near, product, run_product, silu

F32, F64 = np.float32, np.float64
FREE = ["rms_matmul_wide", "rms_matmul_f32_wide", "rms_gate_up_wide"]
ADDED = ["output_matmul_add_wide", "down_matmul_add_wide"]
ROWS = [1, 9, 16, 17, 31, 32, 33, 63, 64, 65, 128, 150]
SIZES = {
    "whole slices": Sizes(hidden=512, ffn=1536, q_heads=8, kv_heads=2, head_dim=128, sequences=64),
    "slices that are not whole": Sizes(hidden=576, ffn=608, q_heads=9, kv_heads=3, head_dim=64, sequences=9),
    "blocks without depth": Sizes(hidden=64, ffn=32, q_heads=1, kv_heads=1, head_dim=64, sequences=64),
    "three tiles of a group": Sizes(hidden=8192, ffn=288, q_heads=2, kv_heads=1, head_dim=64, sequences=64),
    "long rows": Sizes(hidden=2560, ffn=9728, q_heads=32, kv_heads=8, head_dim=128, sequences=64),
}


def plan(target: str, sizes: Sizes) -> CudaPlan:
    return CudaPlan(target, sizes)


def wide_entries(target: str, sizes: Sizes) -> set[str]:
    kernels = cuda_kernels(plan(target, sizes), defaultdict(lambda: "0" * 64))
    return {name for name in kernels if name.endswith("_wide")}


@pytest.fixture(scope="module")
def libraries(device: Device) -> Mapping[str, CudaLibrary]:
    target = WIDE_TARGET if device.target == "sm_90" else device.target
    plans = {name: plan(target, sizes) for name, sizes in SIZES.items()}
    if not all(each.wide for each in plans.values()):
        pytest.skip(f"no products of many rows on {device.target}")
    return libraries_of(device, plans)


@pytest.fixture(scope="module", params=SIZES)
def cuda(libraries: Mapping[str, CudaLibrary], request: pytest.FixtureRequest) -> CudaLibrary:
    return libraries[request.param]


def some(p: Mapping[str, np.ndarray], rows: slice) -> dict[str, np.ndarray]:
    """A product of some of the rows."""
    return {name: value if name in ("weight", "w") else value[rows].copy() for name, value in p.items()}


def widths(cuda: CudaLibrary, entry: str) -> list[int]:
    """Columns to try: the width of queries, keys and values is the most that its entry is compiled for."""
    s = cuda.sizes
    return [1, 77, s.q_size + 2 * s.kv_heads * s.head_dim] if entry == "rms_matmul_wide" else [1, 77, 768, 5003]


@pytest.mark.gpu
@pytest.mark.parametrize("entry", FREE)
def test_products(cuda, rng, entry):
    for n in widths(cuda, entry):
        p = product(cuda, rng, entry, max(ROWS), n)
        want = p["x"].astype(F64) @ p["w"].astype(F64).T
        want *= (p["squares"].astype(F64).sum(axis=1, keepdims=True) / cuda.sizes.hidden + EPS) ** -0.5
        if "gate_up" in entry:
            gate, up = np.split(want, 2, axis=1)
            want = silu(gate) * up
        for m in ROWS:
            q = some(p, slice(m))
            run_product(cuda, entry, q)
            near(q["c"], want[:m])


@pytest.mark.gpu
@pytest.mark.parametrize("entry", ADDED)
def test_products_that_are_added(cuda, rng, entry):
    p = product(cuda, rng, entry, max(ROWS), cuda.sizes.hidden)
    want = p["x"].astype(F64) @ p["w"].astype(F64).T
    for m in ROWS:
        q = some(p, slice(m))
        run_product(cuda, entry, q)
        near(q["residual"] - p["residual"][:m], want[:m])
        assert np.array_equal(q["c"].view(np.uint16), bf16(q["residual"] * q["weight"].astype(F32)).view(np.uint16))
        np.testing.assert_allclose(q["squares"].sum(axis=1), (q["residual"].astype(F64) ** 2).sum(axis=1), rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("entry", [*FREE, *ADDED])
def test_a_row_has_the_same_bits_among_any_number_of_rows(cuda, rng, entry):
    p = product(cuda, rng, entry, 100, cuda.sizes.hidden if entry in ADDED else widths(cuda, entry)[2])
    whole = some(p, slice(100))
    run_product(cuda, entry, whole)
    for rows in (slice(0, 1), slice(5, 17), slice(2, 32), slice(40, 100)):
        q = some(p, rows)
        run_product(cuda, entry, q)
        assert q["c"].tobytes() == whole["c"][rows].tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("entry", ["rms_matmul_wide", "rms_gate_up_wide", "down_matmul_add_wide"])
def test_a_nan_stays_in_its_row(cuda, rng, entry):
    p = product(cuda, rng, entry, 40, cuda.sizes.hidden if entry in ADDED else 77)
    p["x"][13, 7] = np.nan
    run_product(cuda, entry, p)
    assert np.flatnonzero(np.isnan(p["c"].astype(F32)).any(axis=1)).tolist() == [13]


@pytest.mark.parametrize("sequences", [1, 8, 9, 64, 256])
def test_entries_for_many_rows_are_there_for_more_than_eight_sequences(sequences: int):
    sizes = Sizes(512, 1536, 8, 2, 128, sequences)
    assert wide_entries("sm_90a", sizes) == ({*FREE, *ADDED} if sequences > 8 else set())
    assert plan("sm_90a", sizes).has("wide") == (sequences > 8)


@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_100a", "sm_120"])
def test_without_products_of_warpgroups_there_are_none(target: str):
    assert not wide_entries(target, SIZES["whole slices"])
    assert not plan(target, SIZES["whole slices"]).has("wide")


@pytest.mark.parametrize("sizes", [Sizes(11_776, 512, 4, 2, 64, 64), Sizes(512, 512, 512, 32, 64, 64)])
def test_there_are_none_where_a_blocks_share_is_too_large(sizes: Sizes):
    assert not wide_entries("sm_90a", sizes)
    assert not plan("sm_90a", sizes).has("wide")


@pytest.mark.parametrize("name", SIZES)
def test_every_column_is_some_blocks(name: str):
    sizes = SIZES[name]
    divisions = plan("sm_90a", sizes).wide
    columns = {
        "rms_matmul_wide": sizes.q_size + 2 * sizes.kv_heads * sizes.head_dim,
        **dict.fromkeys(ADDED, sizes.hidden),
    }
    for entry, count in columns.items():
        of = divisions[entry]
        clusters, left = divmod(of.blocks, of.split)
        assert left == 0
        assert (of.rows - 8) * clusters < count <= of.rows * clusters


def test_clusters_of_four_are_no_more_than_run_at_once():
    divisions = plan("sm_90a", SIZES["long rows"]).wide
    assert {name: (of.blocks, of.split) for name, of in divisions.items()} == {
        "rms_matmul_wide": (132, 2),
        "output_matmul_add_wide": (120, 4),
        "down_matmul_add_wide": (120, 4),
        "rms_gate_up_wide": (132, 1),
        "rms_matmul_f32_wide": (132, 1),
    }
