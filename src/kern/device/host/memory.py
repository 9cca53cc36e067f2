"""The host device's memory: anonymous mappings, and file regions mapped in place."""

from __future__ import annotations

import ctypes
import errno
import mmap
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final
from weakref import WeakSet

import numpy as np

from kern.device.base import ALIGNMENT, DeviceError, FileRegion, OutOfMemory
from kern.device.host.limits import available_memory
from kern.device.regions import check_extent, read_some, unreadable
from kern.manifest.arrays import round_up

_SLICE: Final = 64 << 20
"""Bytes read between two reports of progress."""

_HUGE_PAGE: Final = 2 << 20
_MADV_POPULATE_READ: Final = 22

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


class HostMemory:
    """Zeroed anonymous memory. Pages are committed when first touched; see `free_memory`."""

    def __init__(self, size: int) -> None:
        """Raises OutOfMemory where the machine refuses."""
        try:
            self._mapping = mmap.mmap(-1, max(size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise _out_of_memory(size, free_memory()) from error
        self.size = size
        self.address = _address(self._mapping)
        if size >= _HUGE_PAGE:
            _advise(self._mapping, mmap.MADV_HUGEPAGE, 0, size)
        with _live_lock:
            _live.add(self)

    def free(self) -> None:
        """Free the range. A second call does nothing."""
        with _live_lock:
            _live.discard(self)
            self._mapping.close()

    def uncommitted(self) -> int:
        """Bytes of this mapping that have no page yet."""
        pages = -(-len(self._mapping) // mmap.PAGESIZE)
        resident = ctypes.create_string_buffer(pages)
        if _libc.mincore(self.address, len(self._mapping), resident):
            raise OSError(ctypes.get_errno(), "mincore")
        return resident.raw[:pages].count(0) * mmap.PAGESIZE


_live_lock = Lock()
_live: WeakSet[HostMemory] = WeakSet()
"""Those of the whole process, not of one device: free memory is the machine's."""


def view(address: int, size: int) -> memoryview:
    """The `size` bytes at `address`, which must stay allocated while the view is used."""
    return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B") if size else memoryview(b"")


def free_memory() -> int:
    """Bytes that can still be allocated: what is available, less what is allocated and not yet touched."""
    with _live_lock:
        untouched = sum(memory.uncommitted() for memory in _live)
    return max(0, available_memory() - untouched)


def allocate(size: int) -> HostMemory:
    """`size` bytes, zeroed, at a multiple of ALIGNMENT (of a page, in fact).

    Raises OutOfMemory before allocating anything where `size` is more than `free_memory`.
    """
    free = free_memory()
    if size > free:
        raise _out_of_memory(size, free)
    return HostMemory(size)


class HostRegions:
    """Regions of a file: aligned ones in one shared read-only mapping, the others copied."""

    def __init__(self, mapping: mmap.mmap | None, copies: HostMemory, addresses: tuple[int, ...]) -> None:
        self._mapping = mapping
        self._copies = copies
        self.addresses = addresses
        self.allocated = copies.size

    def free(self) -> None:
        """Free the memory. A second call does nothing."""
        self._copies.free()
        if self._mapping is not None:
            self._mapping.close()


def load_regions(file: int, regions: Sequence[FileRegion], progress: Callable[[int], None]) -> HostRegions:
    """Regions of the open file `file`, each readable at a multiple of ALIGNMENT.

    The file must keep its length while the regions are in use: pages that a shortened file has lost end the
    process. Raises DeviceError where a region is not inside the file or cannot be read, OutOfMemory for copies.
    """
    check_extent(file, regions)
    mapping = None
    if any(_in_place(region) for region in regions):
        mapping = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    copies = allocate(sum(round_up(region.size) for region in regions if not _in_place(region)))
    loaded = HostRegions(mapping, copies, _addresses(mapping, copies, regions))
    try:
        for region, address in zip(regions, loaded.addresses, strict=True):
            if mapping is not None and _in_place(region):
                _page_in(mapping, region, progress)
            else:
                _copy(file, region, address, progress)
    except BaseException:
        loaded.free()
        raise
    return loaded


def _in_place(region: FileRegion) -> bool:
    return region.offset % ALIGNMENT == 0


def _addresses(mapping: mmap.mmap | None, copies: HostMemory, regions: Sequence[FileRegion]) -> tuple[int, ...]:
    base, next_copy, addresses = 0 if mapping is None else _address(mapping), copies.address, []
    for region in regions:
        if _in_place(region):
            addresses.append(base + region.offset)
        else:
            addresses.append(next_copy)
            next_copy += round_up(region.size)
    return tuple(addresses)


def _copy(file: int, region: FileRegion, address: int, progress: Callable[[int], None]) -> None:
    target = view(address, region.size)
    done = 0
    while done < region.size:
        count = read_some(file, target[done : done + _SLICE], region.offset + done)
        done += count
        progress(count)


def _page_in(mapping: mmap.mmap, region: FileRegion, progress: Callable[[int], None]) -> None:
    """Read the region's pages now: an error of the disk is then an exception, and not the end of the process."""
    end = region.offset + region.size
    for start in range(region.offset, end, _SLICE):
        size = min(_SLICE, end - start)
        try:
            _advise(mapping, _MADV_POPULATE_READ, start, size)
        except OSError as error:
            raise unreadable(region.offset, end, error) from error
        progress(size)


def _advise(mapping: mmap.mmap, advice: int, start: int, size: int) -> None:
    """madvise the pages that hold the range. An operating system that does not know the advice ignores it."""
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    try:
        mapping.madvise(advice, first, start + size - first)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def _address(mapping: mmap.mmap) -> int:
    return int(np.frombuffer(mapping, np.uint8).ctypes.data)


def _out_of_memory(planned: int, free: int) -> DeviceError:
    return OutOfMemory(
        f"{planned:,} bytes are needed on the host and {free:,} are free",
        "lower the capacity, or close other programs",
    )
