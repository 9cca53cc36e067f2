"""The host's memory: zeroed, aligned, its free bytes right; file regions in place or copied."""

from __future__ import annotations

import ctypes
import os
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kern.device.base import ALIGNMENT, DeviceError, FileRegion, OutOfMemory
from kern.device.host.device import HostDevice

PAGE = os.sysconf("SC_PAGESIZE")
CONTENT = random.Random(3).randbytes(5 * PAGE + 123)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """An open file of CONTENT."""
    path = tmp_path_factory.mktemp("weights") / "file"
    path.write_bytes(CONTENT)
    descriptor = os.open(path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def mapped(address: int, size: int) -> bool:
    """Whether one mapping of the process holds all these bytes."""
    ranges = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
    return any(int(low, 16) <= address and address + size <= int(high, 16) for low, high in ranges)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 5 << 20))
def test_memory_is_aligned_zeroed_and_freed(size: int) -> None:
    device = HostDevice(threads=1)
    memory, stream = device.alloc(size), device.stream()
    assert (memory.size, memory.address % ALIGNMENT) == (size, 0)
    assert device.read(memory.address, size, stream).wait() == bytes(size)
    device.write(memory.address, memoryview(b"\xff" * size), stream)
    memory.free()
    memory.free()
    again = device.alloc(size)
    assert device.read(again.address, size, stream).wait() == bytes(size)
    again.free()


def test_freed_memory_leaves_the_process(device: HostDevice) -> None:
    memory = device.alloc(64 << 20)
    assert mapped(memory.address, memory.size)
    memory.free()
    assert not mapped(memory.address, memory.size)


def test_copies_and_zeroing_touch_only_their_range(device: HostDevice) -> None:
    memory, stream = device.alloc(64), device.stream()
    array = np.arange(8, dtype=np.int64).reshape(2, 4)
    device.write(memory.address, array.data, stream)
    pending = device.read(memory.address, 64, stream)
    array[:] = -1
    device.zero(memory.address + 8, 40, stream)
    assert pending.done()
    assert np.frombuffer(pending.wait(), np.int64).tolist() == list(range(8))
    assert np.frombuffer(device.read(memory.address, 64, stream).wait(), np.int64).tolist() == [0] * 6 + [6, 7]
    device.write(memory.address, np.zeros((0, 3), np.int32).data, stream)
    stream.synchronize()


@pytest.mark.slow
def test_a_read_may_be_longer_than_an_int_counts(device: HostDevice) -> None:
    size = (1 << 31) + 1
    memory, stream = device.alloc(size), device.stream()
    device.write(memory.address + size - 2, memoryview(b"\x05\x06"), stream)
    found = device.read(memory.address, size, stream).wait()
    memory.free()

    assert (len(found), found[:1], found[-2:]) == (size, b"\0", b"\x05\x06")


def test_more_than_is_free_is_refused_with_the_bytes_needed_and_free(device: HostDevice) -> None:
    with pytest.raises(OutOfMemory, match=rf"{1 << 60:,} bytes are needed on the host and [0-9,]+ are free"):
        device.alloc(1 << 60)


def test_memory_that_is_allocated_but_not_touched_is_not_free(device: HostDevice) -> None:
    size = device.free_memory() * 6 // 10
    first = HostDevice(threads=1).alloc(size)
    try:
        with pytest.raises(OutOfMemory):
            device.alloc(size)
    finally:
        first.free()
    device.alloc(size).free()


def test_touched_memory_is_not_counted_twice(device: HostDevice) -> None:
    memory = device.alloc(1 << 20)
    assert memory.uncommitted() == 1 << 20
    ctypes.memset(memory.address, 1, 1 << 19)
    assert memory.uncommitted() == 1 << 19
    ctypes.memset(memory.address, 1, 1 << 20)
    assert memory.uncommitted() == 0


REGION = st.tuples(
    st.one_of(st.integers(0, 70).map(lambda n: n * ALIGNMENT), st.integers(0, len(CONTENT) - 1)), st.integers(1, 9000)
).map(lambda pair: FileRegion(pair[0], min(pair[1], len(CONTENT) - pair[0])))


@settings(max_examples=60, deadline=None)
@given(st.lists(REGION, max_size=6))
def test_regions_are_readable_aligned_and_copied_only_if_necessary(file: int, regions: list[FileRegion]) -> None:
    device = HostDevice(threads=1)
    reported: list[int] = []
    loaded = device.load_regions(file, regions, reported.append)
    for region, address in zip(regions, loaded.addresses, strict=True):
        assert address % ALIGNMENT == 0
        content = device.read(address, region.size, device.stream()).wait()
        assert content == CONTENT[region.offset : region.offset + region.size]
    in_place = [region for region in regions if region.offset % ALIGNMENT == 0]
    copied = [region for region in regions if region.offset % ALIGNMENT]
    assert loaded.allocated == sum(-(-region.size // ALIGNMENT) * ALIGNMENT for region in copied)
    starts = {
        address - region.offset for region, address in zip(regions, loaded.addresses, strict=True) if region in in_place
    }
    assert len(starts) <= 1
    assert sum(reported) == sum(region.size for region in regions)
    loaded.free()
    loaded.free()
    assert os.readlink(f"/proc/self/fd/{file}") not in Path("/proc/self/maps").read_text()


def test_a_region_in_place_is_the_file_and_a_copy_is_not(device: HostDevice, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 1024)
    with path.open("rb+") as handle:
        loaded = device.load_regions(handle.fileno(), [FileRegion(256, 1), FileRegion(257, 1)], lambda done: None)
        os.pwrite(handle.fileno(), b"bb", 256)
    seen = [device.read(address, 1, device.stream()).wait() for address in loaded.addresses]
    assert seen == [b"b", b"a"]


@pytest.mark.parametrize(
    ("offset", "size"), [(0, len(CONTENT) + 1), (len(CONTENT), 1), (256, 1 << 62), (-256, 8), (0, 0)]
)
def test_regions_outside_the_file_are_refused(device: HostDevice, file: int, offset: int, size: int) -> None:
    with pytest.raises(DeviceError, match="outside the file of"):
        device.load_regions(file, [FileRegion(0, 1), FileRegion(offset, size)], lambda done: None)


@pytest.mark.parametrize("offset", [2 * PAGE, 2 * PAGE + 1], ids=["in place", "copied"])
def test_a_file_truncated_while_it_is_loaded_is_an_error_and_frees_everything(
    device: HostDevice, tmp_path: Path, offset: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    regions = [FileRegion(0, 16), FileRegion(offset, 16)]
    descriptor = os.open(path, os.O_RDONLY)
    with pytest.raises(DeviceError, match=r"cannot be read|became shorter"):
        device.load_regions(descriptor, regions, lambda done: os.truncate(path, 32))
    os.close(descriptor)
    assert str(path) not in Path("/proc/self/maps").read_text()
