"""The host's matrix products against float64, in exact and in rounded arithmetic."""

from __future__ import annotations

import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kern.device.host.device import HostDevice
from kern.manifest.launches import OperatorLaunch
from kern.manifest.operators import OPERATORS

BF16 = ml_dtypes.bfloat16
NAMES = tuple(OPERATORS)
"""Every operator that the verifier lets a manifest name."""

Array = NDArray[Any]


def multiply(name: str, a: Array, w: Array, c: Array) -> Array:
    """C as the operator leaves it, all three arrays in device memory."""
    device = HostDevice(threads=1)
    stream, memories = device.stream(), []
    for array in (c, a, w):
        memories.append(device.alloc(array.nbytes))
        device.write(memories[-1].address, array.view(np.uint8).data, stream)
    (m, k), n = a.shape, w.shape[0]
    launch = OperatorLaunch("product", name, (*(memory.address for memory in memories), m, n, k))
    device.launch(device.prepare([launch]), stream)
    result = np.frombuffer(device.read(memories[0].address, c.nbytes, stream).wait(), c.dtype).reshape(c.shape)
    for memory in memories:
        memory.free()
    return result


def operands(name: str, m: int, n: int, k: int, seed: int, *, whole: bool) -> tuple[Array, Array, Array]:
    """A, W and an old C: small integers, whose sums float32 holds exactly, or normal numbers."""
    random = np.random.default_rng(seed)
    shapes = ((m, k), (n, k), (m, n))
    draws = [random.integers(-8, 9, shape) if whole else random.standard_normal(shape) for shape in shapes]
    return draws[0].astype(BF16), draws[1].astype(BF16), draws[2].astype(np.float32 if "f32" in name else BF16)


def exact(name: str, a: Array, w: Array, c: Array) -> Array:
    """The product in float64, the old C added where the operator accumulates."""
    product = a.astype(np.float64) @ w.astype(np.float64).T
    return np.asarray(product + c.astype(np.float64) if name.endswith("_acc") else product)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.integers(1, 9), st.integers(1, 40), st.integers(1, 70), st.integers(0, 99))
def test_products_of_integers_are_exact_and_rounded_once(name: str, m: int, n: int, k: int, seed: int) -> None:
    a, w, c = operands(name, m, n, k, seed, whole=True)
    expected = exact(name, a, w, c).astype(c.dtype)
    assert multiply(name, a, w, c).tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1500, 576), (1100, 1030, 24), (3, 30, 9000)])
def test_every_block_is_within_float32s_error(name: str, m: int, n: int, k: int) -> None:
    a, w, c = operands(name, m, n, k, 5, whole=False)
    result = multiply(name, a, w, c).astype(np.float64)
    expected = exact(name, a, w, c)
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(w.astype(np.float64)).T + np.abs(c.astype(np.float64))
    rounding = np.abs(expected) * (2**-8 if c.dtype == BF16 else 2**-24)
    assert np.all(np.abs(result - expected) <= rounding + k * 2**-24 * magnitude)


def test_what_was_in_c_does_not_matter_unless_it_is_added() -> None:
    a, w, _ = operands(NAMES[0], 2, 3, 4, 1, whole=True)
    dirty = np.full((2, 3), np.nan, BF16)
    assert np.isfinite(multiply(NAMES[0], a, w, dirty).astype(np.float32)).all()
    assert np.isnan(multiply(NAMES[1], a, w, dirty).astype(np.float32)).all()


def test_temporaries_stay_small() -> None:
    a, w, c = operands(NAMES[2], 1100, 1100, 2048, 2, whole=False)
    device = HostDevice(threads=1)
    addresses = [array.ctypes.data for array in (c, a, w)]
    prepared = device.prepare([OperatorLaunch("product", NAMES[2], (*addresses, 1100, 1100, 2048))])
    tracemalloc.start()
    device.launch(prepared, device.stream())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 16 << 20
