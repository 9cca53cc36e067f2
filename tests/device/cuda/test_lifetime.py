"""Devices on one GPU free what they took, and do not affect each other."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kern.device import open_device
from kern.device.base import Device, DeviceError, FileRegion, LaunchError
from kern.device.host.device import HostDevice
from kern.manifest.launches import KernelLaunch, OperatorLaunch

if TYPE_CHECKING:
    from kern.device.cuda.device import CudaDevice

pytestmark = pytest.mark.gpu

STEP = 'extern "C" __global__ void step(long long *x, long long add) { *x = *x * 3 + add; }'

Compile = Callable[[str], bytes]
MakeLaunch = Callable[..., KernelLaunch]


def use(image: bytes, make_launch: MakeLaunch, file: int) -> None:
    """Everything that takes memory on a device, once."""
    device = open_device("cuda:0")
    stream, memory = device.stream(), device.alloc(64 << 20)
    weights = device.load_regions(file, [FileRegion(0, 8 << 20)], lambda done: None)
    module = device.load_module(image)
    launch = make_launch(module.function("step"), "ptr i64", memory.address, 1)
    arguments = (memory.address, weights.addresses[0], weights.addresses[0], 8, 64, 64)
    prepared = device.prepare([launch, OperatorLaunch("product", "cublaslt_bf16_tn", arguments)])
    graph = device.capture([prepared])
    graph.launch(stream)
    device.launch(prepared, stream)
    device.read(memory.address, 8, stream)
    device.write(memory.address, memoryview(bytes(5 << 20)), stream)
    graph.free()
    stream.close()
    module.unload()
    weights.free()
    memory.free()
    device.close()


def test_twenty_devices_in_turn_leak_no_memory(
    gpu: CudaDevice, cublaslt: None, compile_cuda: Compile, make_launch: MakeLaunch, tmp_path: Path
) -> None:
    (tmp_path / "weights").write_bytes(bytes(8 << 20))
    file = os.open(tmp_path / "weights", os.O_RDONLY)
    free = []
    for _ in range(20):
        use(compile_cuda(STEP), make_launch, file)
        free.append(gpu.free_memory())
    os.close(file)
    assert min(free[2:]) == max(free[2:]), free


def test_closing_one_device_does_not_affect_another_on_the_same_gpu(
    gpu: CudaDevice, compile_cuda: Compile, make_launch: MakeLaunch
) -> None:
    devices = [open_device("cuda"), open_device("cuda:0")]
    made = []
    for device in devices:
        memory, stream = device.alloc(8), device.stream()
        function = device.load_module(compile_cuda(STEP)).function("step")
        made.append((memory, stream, device.prepare([make_launch(function, "ptr i64", memory.address, 7)])))
    for _ in range(3):
        for device, (_, stream, prepared) in zip(devices, made, strict=True):
            device.launch(prepared, stream)
    devices[0].close()
    devices[0].close()
    memory, stream, prepared = made[1]
    devices[1].launch(prepared, stream)
    assert struct.unpack("=q", devices[1].read(memory.address, 8, stream).wait()) == (7 * 40,)
    devices[1].close()


def test_what_outlives_its_device_can_still_be_freed(
    gpu: CudaDevice, compile_cuda: Compile, make_launch: MakeLaunch
) -> None:
    device = open_device("cuda")
    memory, stream = device.alloc(8), device.stream()
    module = device.load_module(compile_cuda(STEP))
    prepared = device.prepare([make_launch(module.function("step"), "ptr i64", memory.address, 7)])
    graph, pending = device.capture([prepared]), device.read(memory.address, 8, stream)
    device.close()
    del pending
    for give_back in (graph.free, module.unload, memory.free, stream.close):
        give_back()


def test_objects_of_another_device_are_refused(
    device: Device, gpu: CudaDevice, compile_cuda: Compile, make_launch: MakeLaunch
) -> None:
    host, memory = HostDevice(threads=1), device.alloc(8)
    launch = make_launch(device.load_module(compile_cuda(STEP)).function("step"), "ptr i64", memory.address, 7)
    prepared, stream = device.prepare([launch]), device.stream()
    for other in (host.stream(), gpu.stream()):
        with pytest.raises(DeviceError, match="this stream is not of cuda:0"):
            device.launch(prepared, other)
    with pytest.raises(LaunchError, match="another device prepared this launch list"):
        device.launch(host.prepare([]), stream)
    with pytest.raises(LaunchError, match="'step' is not a function of cuda:0"):
        gpu.prepare([launch])
    memory.free()


def test_the_device_describes_itself(device: Device) -> None:
    assert device.name == "cuda:0"
    assert device.target.startswith("sm_")
    for part in (device.target, "GiB", "driver for CUDA"):
        assert part in device.description


def test_bandwidth_is_measured_and_its_memory_freed(device: Device) -> None:
    before = device.free_memory()
    assert device.read_bandwidth() > 0
    assert abs(device.free_memory() - before) < 64 << 20
