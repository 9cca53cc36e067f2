"""The matrix product, few rows and many, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.harness import BF16, bf16, close, poison

ENTRIES = {"matmul": (BF16, 8), "matmul_f32": (np.float32, 20)}
STREAMED = 32  # rows, at most; more are packed


def check(same, rng, entry, m, n, k):
    dtype, bits = ENTRIES[entry]
    a, w = bf16(rng.normal(size=(m, k))), bf16(rng.normal(size=(n, k)) / np.sqrt(k))
    c = poison((m, n), dtype)
    same(entry, y=c, x=a, w=w, m=m, n=n, k=k)
    close(c, a.astype(np.float64) @ w.astype(np.float64).T, bits, slack=1e-5)


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("m", [*range(1, 13), 17, STREAMED - 1, STREAMED, STREAMED + 1, 65])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (3, 2), (31, 33), (130, 63), (257, 576), (64, 1537)])
def test_odd_sizes(same, rng, entry, m, n, k):
    check(same, rng, entry, m, n, k)


@pytest.mark.parametrize(("m", "n", "k"), [(511, 203, 300), (512, 96, 576), (513, 65, 257), (1030, 33, 64)])
def test_many_rows(same, rng, m, n, k):
    check(same, rng, "matmul", m, n, k)


@pytest.mark.parametrize("m", [1, 2, 5, 8])
@pytest.mark.parametrize(("n", "k"), [(960, 576), (576, 1536), (1000, 2051)])
def test_few_rows_of_real_sizes(same, rng, m, n, k):
    check(same, rng, "matmul", m, n, k)


@pytest.mark.parametrize(("m", "k"), [(1, 10_251), (2, 33_001), (7, 8190), (8, 2600), (12, 5441), (STREAMED, 1983)])
def test_rows_too_long_for_the_first_cache(same, rng, m, k):
    check(same, rng, "matmul_f32", m, 21, k)


@pytest.mark.parametrize(("n", "k"), [(35, 33), (17, 2051)])
def test_each_of_few_rows_has_the_bits_that_it_has_alone(run, rng, n, k):
    a, w, alone = bf16(rng.normal(size=(STREAMED, k))), bf16(rng.normal(size=(n, k))), poison((STREAMED, n), np.float32)
    for row in range(STREAMED):
        run("matmul_f32", y=alone[row : row + 1], x=a[row : row + 1], w=w, m=1, n=n, k=k)
    for rows in (*range(2, 13), STREAMED - 1, STREAMED):
        together = poison((rows, n), np.float32)
        run("matmul_f32", y=together, x=a[:rows], w=w, m=rows, n=n, k=k)
        assert np.array_equal(together, alone[:rows]), f"{rows} rows"


def test_a_packed_row_is_the_same_whichever_rows_come_with_it(run, rng):
    m, n, k = 64, 100, 500
    a, w, whole = bf16(rng.normal(size=(m, k))), bf16(rng.normal(size=(n, k))), poison((m, n), np.float32)
    run("matmul_f32", y=whole, x=a, w=w, m=m, n=n, k=k)
    for rows in (STREAMED + 1, STREAMED + 4, STREAMED + 6, 63):
        part = poison((rows, n), np.float32)
        run("matmul_f32", y=part, x=a, w=w, m=rows, n=n, k=k)
        assert np.array_equal(part, whole[:rows])


@pytest.mark.parametrize("m", [1, 2, 7, 20, 40])
def test_a_nan_spoils_its_own_row_only(run, rng, m):
    a, w = bf16(rng.normal(size=(m, 40))), bf16(rng.normal(size=(70, 40)))
    w[5, 39] = np.nan
    c = poison((m, 70), BF16)
    run("matmul", y=c, x=a, w=w, m=m, n=70, k=40)
    assert np.isnan(c[:, 5].astype(np.float32)).all()
    assert np.isfinite(np.delete(c, 5, 1).astype(np.float32)).all()


@pytest.mark.parametrize("m", [1, 8, 64])
def test_sums_are_rounded_to_nearest_even(run, rng, m):
    patterns = rng.integers(0, 2**16, (2, 64), dtype=np.uint16).view(BF16)
    a, w, c = patterns[0, :m, None].copy(), patterns[1, :, None].copy(), poison((m, 64), BF16)
    run("matmul", y=c, x=a, w=w, m=m, n=64, k=1)
    with np.errstate(all="ignore"):
        want = (a.astype(np.float32) * w.astype(np.float32).T).astype(BF16)
    assert np.array_equal(c.astype(np.float32), want.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("m", [1, 2, 7, 8, 65])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (31, 33), (257, 576), (1000, 64)])
def test_a_product_is_added_to_what_is_there(same, rng, m, n, k):
    a, w = bf16(rng.normal(size=(m, k))), bf16(rng.normal(size=(n, k)) / np.sqrt(k))
    before = rng.normal(size=(m, n)).astype(np.float32)
    c = before.copy()
    same("matmul_acc_f32", y=c, x=a, w=w, m=m, n=n, k=k)
    close(c, before + a.astype(np.float64) @ w.astype(np.float64).T, 20, slack=1e-5)
