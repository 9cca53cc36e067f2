"""Memory on a GPU: allocation, files loaded into it, writes and reads through pinned staging."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import kern.device.base as base
from kern.device.base import ALIGNMENT, Device, DeviceError, FileRegion, OutOfMemory, Stream

pytestmark = pytest.mark.gpu

MIB = 1 << 20


def random_bytes(size: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def test_too_much_is_refused_before_anything_is_allocated(device: Device) -> None:
    free = device.free_memory()
    with pytest.raises(OutOfMemory, match=f"{1 << 45:,} bytes are needed on cuda:0 and [0-9,]+ are free"):
        device.alloc(1 << 45)
    assert device.free_memory() == free


@pytest.mark.parametrize("size", [1, 3, 4096, 4097, 4 * MIB, 4 * MIB + 1, 9 * MIB + 5])
@pytest.mark.parametrize("offset", [0, 1, 7])
def test_what_is_written_is_read(device: Device, stream: Stream, size: int, offset: int) -> None:
    memory, data = device.alloc(size + 16), random_bytes(size, size + offset)
    device.write(memory.address + offset, memoryview(data), stream)
    found = device.read(memory.address, size + 16, stream).wait()
    assert found == bytes(offset) + data + bytes(16 - offset)
    memory.free()


def test_a_read_may_be_longer_than_an_int_counts(device: Device, stream: Stream) -> None:
    size = (1 << 31) + 1
    memory = device.alloc(size)
    device.write(memory.address + size - 2, memoryview(b"\x05\x06"), stream)
    found = device.read(memory.address, size, stream).wait()
    memory.free()

    assert (len(found), found[:1], found[-2:]) == (size, b"\0", b"\x05\x06")


def test_arrays_of_any_dtype_are_written_as_their_bytes(device: Device, stream: Stream) -> None:
    memory, array = device.alloc(96), np.arange(24, dtype=np.int32)
    device.write(memory.address, array.reshape(4, 6).data, stream)
    assert device.read(memory.address, 96, stream).wait() == array.tobytes()
    memory.free()


def test_many_writes_in_flight_keep_their_own_bytes(device: Device, stream: Stream) -> None:
    """Each from the same host buffer, changed at once; far more than the staging holds."""
    room, count, random = 16384, 4000, np.random.default_rng(3)
    memory, host = device.alloc(room * count), bytearray(room)
    sizes = random.integers(1, room + 1, count)
    for index, size in enumerate(sizes):
        host[:size] = bytes([index % 251 + 1]) * size
        device.write(memory.address + index * room, memoryview(host)[:size], stream)
        host[:size] = b"\0" * size
    rows = np.frombuffer(device.read(memory.address, room * count, stream).wait(), np.uint8).reshape(count, room)
    for index, size in enumerate(sizes):
        assert (rows[index, :size] == index % 251 + 1).all(), index
        assert not rows[index, size:].any(), index
    memory.free()


def test_large_writes_in_flight_wait_for_staging_and_arrive(device: Device, stream: Stream) -> None:
    memory = device.alloc(64 * MIB)
    data = [random_bytes(3 * MIB + index, index) for index in range(20)]
    for index, each in enumerate(data):
        device.write(memory.address + index * (3 * MIB + 64), memoryview(each), stream)
    for index, each in enumerate(data):
        assert device.read(memory.address + index * (3 * MIB + 64), len(each), stream).wait() == each
    memory.free()


def test_reads_that_nobody_waits_for_do_not_disturb_others(device: Device, stream: Stream) -> None:
    memory = device.alloc(4096)
    for value in range(200):
        device.zero(memory.address, 4096, stream)
        device.read(memory.address, 4096, stream)  # dropped at once
        device.write(memory.address, memoryview(bytes([value + 1]) * 4096), stream)
        assert device.read(memory.address, 4096, stream).wait() == bytes([value + 1]) * 4096
    memory.free()


@pytest.fixture
def weights(tmp_path: Path) -> tuple[int, bytes]:
    """An open file of 50 MB, and its bytes."""
    path, data = tmp_path / "weights", random_bytes(50 * MIB + 77)
    path.write_bytes(data)
    return os.open(path, os.O_RDONLY), data


def test_regions_are_loaded_completely_wherever_they_start(
    device: Device, stream: Stream, weights: tuple[int, bytes]
) -> None:
    file, data = weights
    regions = [
        FileRegion(20 * MIB + 3, 30 * MIB),
        FileRegion(0, 1),
        FileRegion(256, 4 * MIB),
        FileRegion(1000, 4 * MIB + 1),
        FileRegion(len(data) - 5, 5),
        *(FileRegion(index * 911, index + 1) for index in range(300)),
    ]
    done: list[int] = []
    loaded = device.load_regions(file, regions, done.append)
    os.close(file)
    total = sum(region.size for region in regions)
    assert sum(done) == total <= loaded.allocated
    assert max(done) < 16 * MIB  # in steps
    for region, address in zip(regions, loaded.addresses, strict=True):
        assert address % ALIGNMENT == 0
        expected = data[region.offset : region.offset + region.size]
        assert device.read(address, region.size, stream).wait() == expected
    loaded.free()
    loaded.free()


def test_a_region_outside_the_file_is_refused_before_anything_is_allocated(
    device: Device, weights: tuple[int, bytes]
) -> None:
    free = device.free_memory()
    with pytest.raises(DeviceError, match="are outside the file"):
        device.load_regions(weights[0], [FileRegion(0, 51 * MIB)], lambda done: None)
    assert device.free_memory() == free
    os.close(weights[0])


@pytest.mark.parametrize("failure", [KeyboardInterrupt, DeviceError])
def test_loading_regions_that_is_stopped_frees_everything(
    device: Device, weights: tuple[int, bytes], failure: type[BaseException]
) -> None:
    free = device.free_memory()

    def stop(done: int) -> None:
        raise failure("stop")

    with pytest.raises(failure, match="stop"):
        device.load_regions(weights[0], [FileRegion(0, 50 * MIB)], stop)
    assert device.free_memory() == free
    os.close(weights[0])


def test_a_file_that_shrinks_while_it_is_read_is_an_error(device: Device, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(100 * MIB))
    file = os.open(path, os.O_RDWR)
    regions = [FileRegion(0, 100 * MIB)] * 3
    with pytest.raises(DeviceError, match="became shorter"):
        device.load_regions(file, regions, lambda done: os.truncate(file, 0))
    os.close(file)


def test_too_many_bytes_of_weights_are_refused(device: Device, weights: tuple[int, bytes]) -> None:
    regions = [FileRegion(0, 50 * MIB)] * (device.free_memory() // (50 * MIB) + 1)
    with pytest.raises(base.OutOfMemory, match="bytes are needed on cuda:0 and"):
        device.load_regions(weights[0], regions, lambda done: None)
    os.close(weights[0])
