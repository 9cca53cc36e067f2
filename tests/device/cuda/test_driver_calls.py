"""The CUDA device over a fake driver: what the driver receives, errors of kernels, when operators are bound."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from kern.device.base import CudaError, DeviceError, Function, LaunchError, Stream
from kern.manifest.launches import KernelLaunch, OperatorLaunch

pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

from kern.device.cuda import operators
from support.cuda_driver import STATUS, FakeDriver, cubin

if TYPE_CHECKING:
    from kern.device.cuda.device import CudaDevice
    from kern.device.cuda.launch import BoundOperator

KERNELS = """
KERN_KERNEL(step, "ptr,i64") { int64_t *x = KERN_ARG(int64_t *, 0); *x = *x * 3 + KERN_ARG(int64_t, 1); }
KERN_KERNEL(wild, "ptr,i64") { (void)launch, (void)params; }
"""

MakeLaunch = Callable[..., KernelLaunch]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """The driver, which has taken the place of the real one."""
    fake = FakeDriver()
    fake.install(monkeypatch)
    return fake


@pytest.fixture
def device(driver: FakeDriver) -> Iterator[CudaDevice]:
    """A CUDA device over it."""
    from kern.device.cuda.device import CudaDevice

    device = CudaDevice()
    yield device
    device.close()
    assert driver.retained == 0


@pytest.fixture
def stream(device: CudaDevice) -> Stream:
    """A stream of that device."""
    return device.stream()


@pytest.fixture
def kernel(device: CudaDevice, compile_c: Callable[[str], bytes]) -> Callable[[str], Function]:
    """A name → the kernel."""
    return device.load_module(cubin(compile_c(KERNELS))).function


def test_launch_attributes_reach_the_driver(
    driver: FakeDriver, device: CudaDevice, stream: Stream, kernel: Callable[[str], Function], make_launch: MakeLaunch
) -> None:
    x = device.alloc(8).address
    shape: dict[str, Any] = {"grid": (4, 2, 3), "block": (32, 2, 1), "shared_mem": 100_000}
    attributes: list[dict[str, Any]] = [{"pdl": True}, {"cluster": (2, 1, 3)}, {"cooperative": True}, {}]
    launches = [make_launch(kernel("step"), "ptr i64", x, 1, **shape, **each) for each in attributes]
    device.launch(device.prepare(launches), stream)
    assert [each.attributes for each in driver.launched] == [
        {"programmatic_stream_serialization": 1},
        {"cluster_dimension": (2, 1, 3)},
        {"cooperative": 1},
        {},
    ]
    assert {(each.grid, each.block, each.shared_mem) for each in driver.launched} == {((4, 2, 3), (32, 2, 1), 100_000)}


@pytest.mark.parametrize("way", ["eager", "graph", "profile", "singly"])
def test_an_error_of_a_kernel_names_the_list_or_the_only_launch(
    driver: FakeDriver,
    device: CudaDevice,
    stream: Stream,
    kernel: Callable[[str], Function],
    make_launch: MakeLaunch,
    way: str,
) -> None:
    memory = device.alloc(8)
    names = ("step", "wild", "step")
    launches = [
        make_launch(kernel(name), "ptr i64", memory.address, 1, label=f"L{index}.{name}")
        for index, name in enumerate(names)
    ]
    lists = [device.prepare([each]) for each in launches] if way == "singly" else [device.prepare(launches)]
    graph = device.capture(lists) if way == "graph" else None

    def run() -> None:
        for each in lists:
            if graph is not None:
                graph.launch(stream)
            elif way == "profile":
                device.profile(each, stream)
            else:
                device.launch(each, stream)
            stream.synchronize()

    where = " in L1.wild: " if way == "singly" else ", in one of these launch lists: L0.step … L2.step: "
    help = "check the arguments" if way == "singly" else "run with --check"
    message = rf"^a kernel on cuda:0 failed{where}CUDA_ERROR_ILLEGAL_ADDRESS.*; {help}.*; nothing more runs"
    with pytest.raises(LaunchError, match=message) as first:
        run()
    for use in (stream.synchronize, run, device.free_memory, lambda: device.alloc(8)):
        with pytest.raises(LaunchError) as again:
            use()
        assert str(again.value) == str(first.value)
    memory.free()
    stream.close()
    if graph is not None:
        graph.free()


def test_lists_that_have_run_are_not_suspected(
    device: CudaDevice, stream: Stream, kernel: Callable[[str], Function], make_launch: MakeLaunch
) -> None:
    x = device.alloc(8).address
    fine = device.prepare([make_launch(kernel("step"), "ptr i64", x, 1, label=label) for label in ("a", "b")])
    wild = device.prepare([make_launch(kernel("wild"), "ptr i64", x, 1, label="c")])
    device.launch(fine, stream)
    stream.synchronize()
    device.launch(wild, stream)
    with pytest.raises(LaunchError, match="failed in c: "):
        stream.synchronize()


def test_lists_that_have_not_run_are_all_suspected(
    device: CudaDevice, stream: Stream, kernel: Callable[[str], Function], make_launch: MakeLaunch
) -> None:
    x = device.alloc(8).address
    for label, name in (("a", "step"), ("b", "wild")):
        device.launch(device.prepare([make_launch(kernel(name), "ptr i64", x, 1, label=label)]), stream)
    with pytest.raises(LaunchError, match="failed, in one of these launch lists: a; b: "):
        stream.synchronize()


def test_a_launch_that_the_driver_refuses_is_named(
    device: CudaDevice, stream: Stream, kernel: Callable[[str], Function], make_launch: MakeLaunch
) -> None:
    memory = device.alloc(8)
    good = make_launch(kernel("step"), "ptr i64", memory.address, 1)
    bad = make_launch(kernel("step"), "ptr i64", memory.address, 1, label="L2.mlp", grid=(1, 70000, 1))
    prepared = device.prepare([good, bad])
    for use in (lambda: device.launch(prepared, stream), lambda: device.capture([prepared])):
        with pytest.raises(LaunchError, match=r"^L2\.mlp cannot be launched: cuLaunchKernelEx: CUDA_ERROR_INVALID"):
            use()
    assert device.read(memory.address, 8, stream).wait() == (1).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"shared_mem": 300_000}, r"'step' needs 0 \+ 300000 bytes of shared memory; the limit per block is 232448"),
        ({"block": (1025, 1, 1)}, "the block has 1025 threads; 'step' allows at most 1024"),
        ({"grid": (9999, 1, 1), "cooperative": True}, "a cooperative launch of 9999 blocks; cuda:0 holds"),
    ],
)
def test_what_the_gpu_cannot_launch_is_refused_when_it_is_prepared(
    device: CudaDevice,
    kernel: Callable[[str], Function],
    make_launch: MakeLaunch,
    more: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(LaunchError, match=rf"^L1: .*{message}.*; reduce"):
        device.prepare([make_launch(kernel("step"), "ptr i64", 0, 0, label="L1", **{"block": (1024, 1, 1), **more})])


class Products:
    """Operators that note when they are bound and enqueued."""

    log: list[Any] = []  # noqa: RUF012

    def __init__(self, context: Any, *, tune: bool) -> None:
        self.log.append(("made", tune))

    def bind(self, name: str, arguments: Sequence[int]) -> BoundOperator:
        from kern.device.cuda.launch import BoundOperator

        if name == "fft":
            raise DeviceError("unknown operator 'fft'")
        self.log.append(("bound", name, tuple(arguments)))

        def enqueue(stream: ctypes.c_void_p) -> int:
            self.log.append(("enqueued", name, stream.value))
            return int(name == "refused")

        return BoundOperator(enqueue, lambda status: f"status {status}")

    def close(self) -> None:
        self.log.append("closed")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What becomes of operators."""
    monkeypatch.setattr(operators, "Products", Products)
    monkeypatch.setattr(Products, "log", [])
    return Products.log


def test_operators_are_bound_when_a_list_is_prepared_and_only_enqueued_when_it_is_launched(
    device: CudaDevice, kernel: Callable[[str], Function], make_launch: MakeLaunch, log: list[Any]
) -> None:
    device.prepare([make_launch(kernel("step"), "ptr i64", 0, 0)])
    assert log == []
    prepared = device.prepare([OperatorLaunch("a", "product", (1, 2)), OperatorLaunch("b", "sum", (3,))])
    assert log == [("made", False), ("bound", "product", (1, 2)), ("bound", "sum", (3,))]
    log.clear()
    first, second = device.stream(), device.stream()
    for stream in (first, first, second):
        device.launch(prepared, stream)
    assert log == [("enqueued", name, each.number) for each in (first, first, second) for name in ("product", "sum")]
    log.clear()
    device.close()
    assert log == ["closed"]


def test_an_operator_that_is_refused_is_named(
    driver: FakeDriver, device: CudaDevice, stream: Stream, log: list[Any]
) -> None:
    with pytest.raises(DeviceError, match="unknown operator 'fft'"):
        device.prepare([OperatorLaunch("L1.head", "fft", ())])
    prepared = device.prepare([OperatorLaunch("L1.head", "refused", ())])
    with pytest.raises(LaunchError, match=r"^L1\.head cannot be launched: status 1"):
        device.launch(prepared, stream)
    driver.status = STATUS.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(LaunchError, match=r"a kernel on cuda:0 failed in L1\.head"):
        device.launch(prepared, stream)


def test_an_error_of_the_driver_names_the_call_and_the_gpu(driver: FakeDriver, device: CudaDevice) -> None:
    driver.status = STATUS.CUDA_ERROR_NOT_INITIALIZED
    with pytest.raises(
        CudaError, match=r"^cuMemGetInfo on cuda:0 failed: CUDA_ERROR_NOT_INITIALIZED .*; run `kern doctor`"
    ):
        device.free_memory()
    driver.status = STATUS.CUDA_SUCCESS
    assert device.free_memory() > 0
