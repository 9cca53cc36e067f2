"""What every device must do: memory, files, launches, graphs, refusals.

Run on the host, on a GPU, and on the CUDA device over the driver of `support.cuda_driver`, which needs no GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kern.device.base import (
    ALIGNMENT,
    Device,
    DeviceError,
    FileRegion,
    Function,
    LaunchError,
    ModuleError,
    OutOfMemory,
    Stream,
)
from kern.device.host.device import HostDevice
from kern.manifest.launches import KernelLaunch, OperatorLaunch

C = 'KERN_KERNEL(step, "ptr,i64") { int64_t *x = KERN_ARG(int64_t *, 0); *x = *x * 3 + KERN_ARG(int64_t, 1); }'
CUDA = 'extern "C" __global__ void step(long long *x, long long add) { *x = *x * 3 + add; }'
NUMBERS = [5, 1, 4, 2, 8]
KINDS = ["host", "fake", pytest.param("cuda", marks=pytest.mark.gpu)]

MakeLaunch = Callable[..., KernelLaunch]


@dataclass
class Platform:
    """A kind of device: how to open one, and a module for it."""

    open: Callable[[], Device]
    image: bytes
    opened: list[Device] = field(default_factory=list)

    def device(self) -> Device:
        """A new device object, closed at the end of the test."""
        self.opened.append(self.open())
        return self.opened[-1]


@pytest.fixture(params=KINDS)
def platform(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    """Each kind of device in turn. The fake GPU must have got back all that was taken when its devices are closed."""
    if request.param == "host":
        platform, held = Platform(HostDevice, request.getfixturevalue("compile_c")(C)), int
    elif request.param == "fake":
        pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
        from kern.device.cuda.device import CudaDevice
        from support.cuda_driver import FakeDriver, cubin

        fake = FakeDriver()
        fake.install(monkeypatch)
        platform, held = Platform(CudaDevice, cubin(request.getfixturevalue("compile_c")(C))), fake.held
    else:
        gpu = request.getfixturevalue("gpu")
        from kern.toolchain.nvrtc import compile_cubin

        platform, held = Platform(type(gpu), compile_cubin(CUDA, "step.cu", gpu.target)), int
    yield platform
    for device in platform.opened:
        device.close()
        device.close()
    assert held() == 0


@pytest.fixture
def device(platform: Platform) -> Device:
    """A device of that kind."""
    return platform.device()


@pytest.fixture
def stream(device: Device) -> Stream:
    """A stream of that device."""
    return device.stream()


@pytest.fixture
def function(platform: Platform, device: Device) -> Iterator[Function]:
    """`step(x, add)`, which makes `*x * 3 + add` of the i64 at `x`."""
    module = device.load_module(platform.image)
    yield module.function("step")
    module.unload()


@pytest.fixture
def number(device: Device) -> Iterator[int]:
    """The address of an i64, 0 at first."""
    memory = device.alloc(8)
    yield memory.address
    memory.free()


def steps(make_launch: MakeLaunch, function: Function, address: int, numbers: list[int]) -> list[KernelLaunch]:
    return [make_launch(function, "ptr i64", address, each, label=f"step {each}") for each in numbers]


def value(device: Device, address: int, stream: Stream) -> int:
    return int.from_bytes(device.read(address, 8, stream).wait(), "little")


def after(numbers: list[int]) -> int:
    result = 0
    for each in numbers:
        result = result * 3 + each
    return result


@pytest.mark.parametrize("size", [0, 1, 255, 4097, 3 << 20])
def test_memory_is_zeroed_aligned_and_freed(device: Device, stream: Stream, size: int) -> None:
    for _ in range(2):
        memory = device.alloc(size)
        assert (memory.size, memory.address % ALIGNMENT) == (size, 0)
        assert device.read(memory.address, size, stream).wait() == bytes(size)
        device.write(memory.address, memoryview(b"\xff" * size), stream)
        stream.synchronize()
        memory.free()
        memory.free()


def test_more_memory_than_is_free_is_refused(device: Device) -> None:
    with pytest.raises(OutOfMemory, match="are free; lower the capacity"):
        device.alloc(1 << 50)
    device.alloc(8).free()


@pytest.mark.parametrize("size", [1, 4097, (4 << 20) + 1, (9 << 20) + 5])
def test_bytes_are_read_as_they_were_written(device: Device, stream: Stream, size: int) -> None:
    memory, data = device.alloc(size + 16), os.urandom(size)
    given = bytearray(data)
    device.write(memory.address + 7, memoryview(given), stream)
    given[:] = bytes(size)  # may be reused at once
    assert device.read(memory.address, size + 16, stream).wait() == bytes(7) + data + bytes(9)
    device.zero(memory.address + 7, size, stream)
    assert device.read(memory.address, size + 16, stream).wait() == bytes(size + 16)
    memory.free()


def test_a_read_has_the_bytes_at_its_point_of_the_stream(device: Device, stream: Stream, number: int) -> None:
    pending = []
    for each in range(300):
        device.write(number, memoryview(each.to_bytes(8, "little")), stream)
        pending.append(device.read(number, 8, stream))
    assert [int.from_bytes(each.wait(), "little") for each in reversed(pending)] == list(reversed(range(300)))
    assert pending[7].done()
    assert pending[7].wait() == (7).to_bytes(8, "little")


def test_zeroing_is_ordered_with_launches_and_touches_no_other_byte(
    device: Device, stream: Stream, function: Function, make_launch: MakeLaunch
) -> None:
    memory, blocks = device.alloc(8 * 5), [0] * 5
    adding = [device.prepare(steps(make_launch, function, memory.address + 8 * each, [each + 1])) for each in range(5)]
    for turn in range(12):
        for each in range(5):
            device.launch(adding[each], stream)
            blocks[each] = blocks[each] * 3 + each + 1
        device.zero(memory.address + 8 * (turn % 5), 8, stream)
        blocks[turn % 5] = 0
    assert device.read(memory.address, 40, stream).wait() == b"".join(each.to_bytes(8, "little") for each in blocks)
    device.zero(memory.address + 3, 0, stream)
    device.zero(memory.address + 9, 21, stream)
    kept = b"".join(each.to_bytes(8, "little") for each in blocks)
    assert device.read(memory.address, 40, stream).wait() == kept[:9] + bytes(21) + kept[30:]
    memory.free()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[tuple[int, bytes]]:
    """An open file, and its bytes."""
    path, data = tmp_path / "weights", os.urandom((5 << 20) + 77)
    path.write_bytes(data)
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor, data
    os.close(descriptor)


def test_regions_of_a_file_are_loaded_wherever_they_start(
    device: Device, stream: Stream, file: tuple[int, bytes]
) -> None:
    descriptor, data = file
    regions = [
        FileRegion(0, 1),
        FileRegion(256, 4 << 20),
        FileRegion(1000, (4 << 20) + 1),
        FileRegion(len(data) - 5, 5),
    ]
    done: list[int] = []
    loaded = device.load_regions(descriptor, regions, done.append)
    assert sum(done) == sum(region.size for region in regions)
    for region, address in zip(regions, loaded.addresses, strict=True):
        assert address % ALIGNMENT == 0
        expected = data[region.offset : region.offset + region.size]
        assert device.read(address, region.size, stream).wait() == expected
    loaded.free()
    loaded.free()


def test_a_region_outside_of_the_file_is_refused(device: Device, file: tuple[int, bytes]) -> None:
    with pytest.raises(DeviceError, match="are outside the file"):
        device.load_regions(file[0], [FileRegion(0, 1), FileRegion(0, 6 << 20)], lambda done: None)


def test_an_error_of_progress_frees_what_was_loaded(device: Device, file: tuple[int, bytes]) -> None:
    def stop(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        device.load_regions(file[0], [FileRegion(1, 5 << 20)], stop)


@pytest.mark.parametrize("way", ["eager", "graph"])
def test_launches_run_in_order(
    device: Device, stream: Stream, function: Function, number: int, make_launch: MakeLaunch, way: str
) -> None:
    launches = steps(make_launch, function, number, NUMBERS)
    first, second = device.prepare(launches[:2]), device.prepare(launches[2:])
    assert (len(first), len(second), second.labels) == (2, 3, ("step 4", "step 2", "step 8"))
    if way == "graph":
        graph = device.capture([first, second])
        graph.launch(stream)
        graph.launch(stream)
        graph.free()
    else:
        for prepared in (first, second) * 2:
            device.launch(prepared, stream)
    assert value(device, number, stream) == after(NUMBERS * 2)


def test_recording_runs_nothing_and_a_freed_graph_does_nothing(
    device: Device, stream: Stream, function: Function, number: int, make_launch: MakeLaunch
) -> None:
    graph = device.capture([device.prepare(steps(make_launch, function, number, [7]))])
    assert value(device, number, stream) == 0
    graph.free()
    graph.free()
    graph.launch(stream)
    assert value(device, number, stream) == 0


def test_a_list_runs_on_several_streams_and_in_graphs_in_turn(
    device: Device, function: Function, number: int, make_launch: MakeLaunch
) -> None:
    streams, numbers = [device.stream(), device.stream()], []
    prepared = device.prepare(steps(make_launch, function, number, [1, 2]))
    for turn in range(6):
        if turn % 3 == 2:
            graph = device.capture([prepared])
            graph.launch(streams[turn % 2])
            graph.free()
        else:
            device.launch(prepared, streams[turn % 2])
        streams[turn % 2].synchronize()
        numbers += [1, 2]
    assert value(device, number, streams[0]) == after(numbers)
    streams[1].close()
    streams[1].close()


def test_profiling_runs_the_list_and_times_each_launch(
    device: Device, stream: Stream, function: Function, number: int, make_launch: MakeLaunch
) -> None:
    seconds = device.profile(device.prepare(steps(make_launch, function, number, [7, 8])), stream)
    assert len(seconds) == 2
    assert all(0 < each < 60 for each in seconds)
    assert value(device, number, stream) == after([7, 8])
    assert device.profile(device.prepare([]), stream) == ()


def test_an_unknown_operator_is_refused_with_the_known_ones(device: Device, request: pytest.FixtureRequest) -> None:
    if "cuda" in device.name:
        products = pytest.importorskip("kern.device.cuda.cublaslt")
        try:
            products.version()
        except DeviceError as error:
            pytest.skip(error.message)
    with pytest.raises(DeviceError, match=r"unknown operator 'fft'.*cublaslt_bf16_tn, cublaslt_bf16_tn_acc"):
        device.prepare([OperatorLaunch("head", "fft", ())])


def test_unknown_symbols_and_bytes_that_are_not_a_module_are_refused(
    platform: Platform, device: Device, function: Function
) -> None:
    module = device.load_module(platform.image)
    for name in ("stop", "", "step\0"):
        with pytest.raises(ModuleError, match=r"has no (kernel|function) "):
            module.function(name)
    module.unload()
    module.unload()
    with pytest.raises(ModuleError):
        module.function("step")
    for image in (b"", b"junk", platform.image[:40], platform.image[:64] + b"junk"):
        with pytest.raises(ModuleError):
            device.load_module(image)


def test_functions_and_lists_of_another_device_are_refused_by_name(
    platform: Platform, device: Device, stream: Stream, function: Function, make_launch: MakeLaunch
) -> None:
    class Foreign:
        symbol = "alien"

    class Other:
        labels = ()

        def __len__(self) -> int:
            return 0

    with pytest.raises(LaunchError, match="L1: 'alien' is not a function of"):
        device.prepare([make_launch(Foreign(), label="L1")])
    other: Any = Other()
    for use in (
        lambda: device.launch(other, stream),
        lambda: device.profile(other, stream),
        lambda: device.capture([other]),
    ):
        with pytest.raises(LaunchError, match="another device prepared this launch list"):
            use()
    module = device.load_module(platform.image)
    unloaded = module.function("step")
    module.unload()
    with pytest.raises(LaunchError, match="L2: the module of 'step' has been unloaded; unload a module only after"):
        device.prepare([make_launch(unloaded, "ptr i64", 0, 0, label="L2")])


def test_every_error_says_what_to_do(
    device: Device, stream: Stream, function: Function, make_launch: MakeLaunch
) -> None:
    foreign: Any = type("Foreign", (), {"symbol": "alien"})()
    for use in (
        lambda: device.alloc(1 << 50),
        lambda: device.load_module(b"junk"),
        lambda: device.prepare([make_launch(foreign)]),
        lambda: device.launch(foreign, stream),
    ):
        with pytest.raises(DeviceError) as caught:
            use()
        assert caught.value.help
