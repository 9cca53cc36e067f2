"""Writing records of launches for tests, line by line, as the recorder would; and an allocator that reuses memory."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SEGMENT = 20 * 2**20
SMALL, GRAIN = 2**20, 512


class Allocator:
    """A caching allocator: large ranges from the driver, cut into blocks that are reused, first fit."""

    def __init__(self, base: int = 0x7F00_0000_0000) -> None:
        self._next = base
        self.ranges: list[tuple[int, int]] = []
        self._free: list[tuple[int, int]] = []
        self._held: dict[int, int] = {}

    def take(self, size: int) -> int:
        """The address of a block of at least `size` bytes."""
        size = max(-(-size // GRAIN) * GRAIN, GRAIN)
        for index, (start, free) in enumerate(self._free):
            if free >= size:
                self._free[index : index + 1] = [(start + size, free - size)] if free > size else []
                self._held[start] = size
                return start
        self._grow(max(size, SEGMENT))
        return self.take(size)

    def give(self, address: int) -> None:
        """A block is no longer needed; neighbours of one range that are free are joined."""
        self._free.append((address, self._held.pop(address)))
        self._free.sort()
        joined: list[tuple[int, int]] = []
        for start, size in self._free:
            last = joined[-1] if joined else None
            if last is not None and last[0] + last[1] == start and self.range(start) == self.range(last[0]):
                joined[-1] = (last[0], last[1] + size)
            else:
                joined.append((start, size))
        self._free = joined

    def range(self, address: int) -> tuple[int, int]:
        """The driver's allocation that holds an address: base and bytes."""
        return next((base, size) for base, size in self.ranges if base <= address < base + size)

    def _grow(self, size: int) -> None:
        self.ranges.append((self._next, size))
        self._free.append((self._next, size))
        self._next += size + 2**21


class Recorder:
    """Writes one process's folder."""

    def __init__(self, dump: Path, pid: int = 100) -> None:
        self.folder = dump / f"pid-{pid}"
        (self.folder / "modules").mkdir(parents=True)
        (self.folder / "recorder.log").touch()
        self._file = (self.folder / "launches.jsonl").open("w")
        self._kernels: dict[tuple[str, str | None], int] = {}
        self.line = 0
        self.time = 10**9
        self.launches = 0
        self.write("process", format=1, pid=pid, command=["python", "-c", "pass"], driver=13000, cupti=130001)

    def write(self, record: str, **values: Any) -> int:
        """Write a line, a little later than the last; its number."""
        self.time += 1000
        self.line += 1
        self._file.write(json.dumps({"record": record, "t": self.time, **values}) + "\n")
        return self.line

    def module(self, image: bytes) -> str:
        """Load a module; its hash."""
        sha256 = hashlib.sha256(image).hexdigest()
        (self.folder / "modules" / f"{sha256}.cubin").write_bytes(image)
        self.write("module", module=sha256, bytes=len(image))
        return sha256

    def kernel(self, symbol: str, module: str | None, sizes: Sequence[int] | None, **values: Any) -> int:
        """The number of a kernel with parameters of these sizes, recorded at its first use."""
        key = (symbol, module)
        if key not in self._kernels:
            self._kernels[key] = len(self._kernels)
            told = {} if sizes is None else {"params": _places(sizes), "layout": "driver"}
            self.write(
                "kernel",
                kernel=self._kernels[key],
                symbol=symbol,
                module=module,
                found="handle" if module else None,
                **({"params": None, "layout": None} | told | {"attributes": {"registers": 32}} | values),
            )
        return self._kernels[key]

    def launch(
        self, kernel: int, params: Sequence[bytes] | None, pointers: Sequence[dict[str, Any]] = (), **values: Any
    ) -> int:
        """A launch; its line."""
        self.launches += 1
        return self.write("launch", **launch_values(kernel, params, pointers, **values))

    def end(self) -> Path:
        """The process exits; the folder."""
        self.write("end", launches=self.launches)
        self._file.close()
        return self.folder


def launch_values(
    kernel: int, params: Sequence[bytes] | None, pointers: Sequence[dict[str, Any]] = (), **values: Any
) -> dict[str, Any]:
    """The keys of a launch, or of a graph's node."""
    return {
        "thread": 1,
        "context": 1,
        "stream": 7,
        "kernel": kernel,
        "grid": [1, 1, 1],
        "block": [128, 1, 1],
        "shared": 0,
        "via": "params",
        "params": None if params is None else [param.hex() for param in params],
        "pointers": list(pointers),
        **values,
    }


def packed(value: int | float, size: int) -> bytes:
    """A scalar as it is in a parameter; a float takes 4 bytes."""
    if isinstance(value, float):
        return struct.pack("<f", value)
    return (value % 2 ** (8 * size)).to_bytes(size, "little")


def _places(sizes: Sequence[int]) -> list[list[int]]:
    places, end = [], 0
    for size in sizes:
        align = min(size, 8) if size in (1, 2, 4, 8) else 8
        start = -(-end // align) * align
        places.append([start, size])
        end = start + size
    return places
