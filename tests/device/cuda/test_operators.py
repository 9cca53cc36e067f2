"""cublasLt's matrix products against float64, in exact and in rounded arithmetic; which algorithm runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from kern.device import open_device
from kern.device.base import Device, DeviceError, Stream
from kern.manifest.launches import OperatorLaunch

if TYPE_CHECKING:
    from kern.device.cuda.device import CudaDevice

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("cublaslt")]

BF16 = ml_dtypes.bfloat16
NAMES = ("cublaslt_bf16_tn", "cublaslt_bf16_tn_acc", "cublaslt_bf16_tn_f32", "cublaslt_bf16_tn_f32_acc")
SHAPES = [
    (m, n, k)
    for m in (1, 2, 17, 512)
    for n, k in ((1, 1), (3, 5), (17, 33), (64, 64), (129, 200), (576, 1536), (4096, 2560))
]

Array = NDArray[Any]


class Arrays:
    """Arrays in device memory, each `offset` bytes after a multiple of 256."""

    def __init__(self, device: Device, stream: Stream, *arrays: Array, offset: int = 0) -> None:
        self.device, self.stream, self.offset = device, stream, offset
        self.memories = [device.alloc(array.nbytes + 512) for array in arrays]
        self.addresses = [memory.address + offset for memory in self.memories]
        for address, array in zip(self.addresses, arrays, strict=True):
            device.write(address, array.reshape(-1).view(np.uint8).data, stream)

    def read(self, index: int, like: Array) -> Array:
        data = self.device.read(self.addresses[index], like.nbytes, self.stream).wait()
        return np.frombuffer(data, like.dtype).reshape(like.shape)

    def around(self, index: int, size: int) -> tuple[bytes, bytes]:
        """The bytes before and after an array."""
        whole = self.device.read(self.memories[index].address, size + 512, self.stream).wait()
        return whole[: self.offset], whole[self.offset + size :]

    def free(self) -> None:
        for memory in self.memories:
            memory.free()


def operands(name: str, shape: tuple[int, int, int], seed: int, *, whole: bool) -> tuple[Array, Array, Array]:
    """An old C, A and W: small integers, whose sums float32 holds exactly, or normal numbers."""
    (m, n, k), random = shape, np.random.default_rng(seed)
    draws = [
        random.integers(-4, 5, each) if whole else random.standard_normal(each) for each in ((m, n), (m, k), (n, k))
    ]
    c, a, w = draws
    return c.astype(np.float32 if "f32" in name else BF16), a.astype(BF16), w.astype(BF16)


def expected(name: str, c: Array, a: Array, w: Array) -> Array:
    product = a.astype(np.float64) @ w.astype(np.float64).T
    return product + c.astype(np.float64) if name.endswith("acc") else product


def multiply(device: Device, stream: Stream, name: str, c: Array, a: Array, w: Array, offset: int = 0) -> Array:
    """C as the operator leaves it; fails if it wrote outside of C."""
    (m, k), n = a.shape, w.shape[0]
    arrays = Arrays(device, stream, c, a, w, offset=offset)
    launch = OperatorLaunch("product", name, (*arrays.addresses, m, n, k))
    device.launch(device.prepare([launch]), stream)
    result = arrays.read(0, c)
    assert not any(map(any, arrays.around(0, c.nbytes)))
    arrays.free()
    return result


def check_whole(name: str, result: Array, c: Array, a: Array, w: Array) -> None:
    """Integers are exact except for the rounding of the result: one, and one of the product added to bfloat16."""
    exact = expected(name, c, a, w)
    rounded = exact.astype(c.dtype).astype(np.float64)
    if name != "cublaslt_bf16_tn_acc":
        assert (result.astype(np.float64) == rounded).all()
        return
    product = expected("cublaslt_bf16_tn", c, a, w)
    small = (abs(product) <= 256) & (abs(exact) <= 256)  # bfloat16 holds these
    assert (result.astype(np.float64) == rounded)[small].all()
    assert (abs(result.astype(np.float64) - exact) <= (abs(product) * (1 + 2**-8) + abs(exact)) * 2**-8).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_of_integers_are_exact_except_for_rounding(
    device: Device, stream: Stream, name: str, shape: tuple[int, int, int]
) -> None:
    c, a, w = operands(name, shape, 1, whole=True)
    check_whole(name, multiply(device, stream, name, c, a, w), c, a, w)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [each for each in SHAPES if each[1] in (129, 576, 4096)], ids=str)
def test_products_are_near_those_in_float64(
    device: Device, stream: Stream, name: str, shape: tuple[int, int, int]
) -> None:
    c, a, w = operands(name, shape, 2, whole=False)
    exact = expected(name, c, a, w)
    error = np.linalg.norm(multiply(device, stream, name, c, a, w) - exact) / np.linalg.norm(exact)
    assert error < (2e-5 if "f32" in name else 4e-3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("offset", [4, 16, 64])
def test_products_at_smaller_alignments(device: Device, stream: Stream, name: str, offset: int) -> None:
    c, a, w = operands(name, (17, 72, 96), 3, whole=True)
    check_whole(name, multiply(device, stream, name, c, a, w, offset), c, a, w)


def test_a_product_that_does_not_accumulate_ignores_the_old_result(device: Device, stream: Stream) -> None:
    for name in ("cublaslt_bf16_tn", "cublaslt_bf16_tn_f32"):
        c, a, w = operands(name, (17, 72, 96), 4, whole=True)
        poisoned = np.full_like(c, np.nan)
        assert np.isfinite(multiply(device, stream, name, poisoned, a, w).astype(np.float64)).all()


def test_an_operator_in_a_graph_does_what_it_does_alone(device: Device, stream: Stream) -> None:
    for name in NAMES:
        c, a, w = operands(name, (17, 576, 1536), 5, whole=False)
        alone = multiply(device, stream, name, c, a, w)
        arrays = Arrays(device, stream, c, a, w)
        launch = OperatorLaunch("product", name, (*arrays.addresses, 17, 576, 1536))
        graph = device.capture([device.prepare([launch])])
        assert (arrays.read(0, c) == c).all()
        graph.launch(stream)
        assert arrays.read(0, c).tobytes() == alone.tobytes()
        graph.free()
        arrays.free()


@pytest.fixture
def another(gpu: CudaDevice) -> Iterator[Device]:
    device = open_device("cuda")
    yield device
    device.close()


def test_two_devices_run_the_same_algorithm(
    device: Device, stream: Stream, another: Device, cache_folder: Path
) -> None:
    name, shape = "cublaslt_bf16_tn_f32", (33, 640, 2560)
    c, a, w = operands(name, shape, 6, whole=False)
    first = multiply(device, stream, name, c, a, w)
    kept = json.loads((cache_folder / "kern" / "cublaslt.json").read_text())
    mine = {key: value for key, value in kept.items() if "|64|640|2560|" in key}
    assert len(mine) == 1
    assert multiply(another, another.stream(), name, c, a, w).tobytes() == first.tobytes()
    assert json.loads((cache_folder / "kern" / "cublaslt.json").read_text()) == kept


def test_a_kept_algorithm_is_used_until_tuning_chooses_again(gpu: CudaDevice, cache_folder: Path) -> None:
    name, path = "cublaslt_bf16_tn", cache_folder / "kern" / "cublaslt.json"
    c, a, w = operands(name, (48, 704, 2560), 7, whole=True)
    written = []
    for tune in (False, False, True):
        device = open_device("cuda", tune=tune)
        multiply(device, device.stream(), name, c, a, w)
        device.close()
        written.append(path.stat().st_mtime_ns)
    assert written[0] == written[1] < written[2]


def test_an_algorithm_that_the_library_refuses_is_chosen_again(
    device: Device, another: Device, stream: Stream, cache_folder: Path
) -> None:
    name, path = "cublaslt_bf16_tn", cache_folder / "kern" / "cublaslt.json"
    c, a, w = operands(name, (49, 768, 2560), 8, whole=True)
    multiply(device, stream, name, c, a, w)
    kept = json.loads(path.read_text())
    (key,) = (key for key in kept if "|64|768|2560|" in key)
    path.write_text(json.dumps({**kept, key: "ff" * 64}))
    result = multiply(another, another.stream(), name, c, a, w)
    assert (result.astype(np.float64) == expected(name, c, a, w).astype(BF16).astype(np.float64)).all()
    assert json.loads(path.read_text())[key] != "ff" * 64


def test_one_algorithm_serves_all_m_down_to_half(device: Device, stream: Stream, cache_folder: Path) -> None:
    name, path, written = "cublaslt_bf16_tn_f32", cache_folder / "kern" / "cublaslt.json", []
    for m in (128, 127, 65, 100):
        c, a, w = operands(name, (m, 832, 512), 9, whole=True)
        check_whole(name, multiply(device, stream, name, c, a, w), c, a, w)
        written.append(path.stat().st_mtime_ns)
    assert len(set(written)) == 1


@pytest.mark.parametrize("arguments", [(0, 0, 0, 0, 1, 1), (0, 0, 0, 1, -1, 1)])
def test_an_empty_product_is_refused(device: Device, arguments: tuple[int, ...]) -> None:
    with pytest.raises(DeviceError, match="is empty"):
        device.prepare([OperatorLaunch("product", "cublaslt_bf16_tn", arguments)])


def test_an_unknown_operator_is_refused_with_the_known_ones(device: Device) -> None:
    with pytest.raises(DeviceError, match=r"unknown operator 'cublaslt_fp8'.*cublaslt_bf16_tn_f32_acc"):
        device.prepare([OperatorLaunch("product", "cublaslt_fp8", ())])
