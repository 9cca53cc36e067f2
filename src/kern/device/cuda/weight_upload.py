"""Uploads weights to the GPU: several threads read into pinned memory, and each piece is copied when it is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Final, NamedTuple

from kern.device.base import ALIGNMENT, FileRegion
from kern.device.cuda.context import Context
from kern.device.cuda.memory import CudaMemory
from kern.device.cuda.staging import Pinned
from kern.device.cuda.stream import CudaStream
from kern.device.regions import check_extent, read_whole
from kern.manifest.arrays import round_up

_PIECE: Final = 4 << 20
"""Bytes of one copy, and between two reports of progress."""

_THREADS: Final = 8
_BUFFERS_PER_THREAD: Final = 2
"""With the piece size, the fastest of those tried from the page cache to an H200 (4 to 16 threads, 2 to 8 MiB, 2 or 4
buffers): 26 GB/s, against 13 to 23 GB/s of the others except 12 threads."""


class CudaRegions:
    """Regions of a file in one arena of device memory."""

    def __init__(self, arena: CudaMemory, addresses: tuple[int, ...]) -> None:
        self._arena = arena
        self.addresses = addresses
        self.allocated = arena.size

    def free(self) -> None:
        """Free the memory. A second call does nothing."""
        self._arena.free()


class _Piece(NamedTuple):
    offset: int
    size: int
    address: int


def upload(context: Context, file: int, regions: Sequence[FileRegion], progress: Callable[[int], None]) -> CudaRegions:
    """Copy regions of the open file `file` to the device, each to a multiple of ALIGNMENT.

    Raises DeviceError where a region is not inside the file or cannot be read, OutOfMemory.
    """
    check_extent(file, regions)
    with ExitStack() as undo:
        arena = CudaMemory(context, sum(round_up(region.size) for region in regions))
        undo.callback(arena.free)
        addresses = tuple(_addresses(arena.address, regions))
        _fill(context, file, _pieces(regions, addresses), progress)
        undo.pop_all()
    return CudaRegions(arena, addresses)


def _addresses(base: int, regions: Sequence[FileRegion]) -> Iterator[int]:
    assert base % ALIGNMENT == 0
    for region in regions:
        yield base
        base += round_up(region.size)


def _pieces(regions: Sequence[FileRegion], addresses: Sequence[int]) -> list[_Piece]:
    """The copies to make, in the order of the file."""
    pieces = [
        _Piece(region.offset + start, min(_PIECE, region.size - start), address + start)
        for region, address in zip(regions, addresses, strict=True)
        for start in range(0, region.size, _PIECE)
    ]
    return sorted(pieces)


def _fill(context: Context, file: int, pieces: Sequence[_Piece], progress: Callable[[int], None]) -> None:
    """Make the copies on a separate stream, and wait for them."""
    threads = min(_THREADS, len(os.sched_getaffinity(0)), max(1, len(pieces)))
    room = min(_PIECE, max((piece.size for piece in pieces), default=0))
    buffers: SimpleQueue[Pinned] = SimpleQueue()

    def copy(piece: _Piece) -> int:
        pinned = buffers.get()
        try:
            with context:
                pinned.event.wait()
                read_whole(file, pinned.view[: piece.size], piece.offset)
                pinned.send(piece.address, piece.size, stream)
        finally:
            buffers.put(pinned)
        return piece.size

    with ExitStack() as held:
        stream = CudaStream(context)
        held.callback(stream.close)
        for _ in range(min(len(pieces), threads * _BUFFERS_PER_THREAD)):
            held.callback(_free, context, _into(buffers, context, room))
        with ThreadPoolExecutor(threads) as pool:
            try:
                for size in pool.map(copy, pieces):
                    progress(size)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        stream.synchronize()


def _into(buffers: SimpleQueue[Pinned], context: Context, size: int) -> Pinned:
    with context:
        pinned = Pinned(context, size)
    buffers.put(pinned)
    return pinned


def _free(context: Context, pinned: Pinned) -> None:
    if context.usable:
        with context:
            pinned.free()
