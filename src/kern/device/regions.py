"""Regions of a file that a device loads: checking that they are inside it, and reading them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kern.device.base import DeviceError, FileRegion


def check_extent(file: int, regions: Sequence[FileRegion]) -> None:
    """Raises DeviceError where a region is empty or not inside the open file."""
    length = os.fstat(file).st_size
    for region in regions:
        if not 0 <= region.offset < region.offset + region.size <= length:
            raise DeviceError(
                f"bytes {region.offset} to {region.offset + region.size} are outside the file of {length} bytes",
                "fetch or build the file again: it is truncated",
            )


def read_whole(file: int, target: memoryview, offset: int) -> None:
    """Fill `target` from the open file at `offset`. Raises DeviceError where the bytes cannot be read."""
    done = 0
    while done < len(target):
        count = read_some(file, target[done:], offset + done)
        done += count


def read_some(file: int, target: memoryview, offset: int) -> int:
    """Fill at least one byte from the start of `target`; return how many. Raises DeviceError where none can be read."""
    try:
        count = os.preadv(file, [target], offset)
    except OSError as error:
        raise unreadable(offset, offset + len(target), error) from error
    if count == 0:
        raise DeviceError("the file became shorter while it was being read", "start again when the file is complete")
    return count


def unreadable(start: int, end: int, error: OSError) -> DeviceError:
    """The error for bytes that the operating system cannot read."""
    return DeviceError(
        f"bytes {start} to {end} of the file cannot be read: {error.strerror}",
        "check the disk, or fetch the file again",
    )
