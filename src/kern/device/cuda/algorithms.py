"""Which cublasLt algorithm a shape runs, kept in the user's cache so that two loads do the same arithmetic."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from kern.device.base import DeviceError
from kern.user_cache import NAME_ANOTHER, user_cache

WORKSPACE_BYTES: Final = 32 << 20
"""Workspace that every algorithm may use, NVIDIA's recommendation for Hopper (cuBLAS, cublasSetWorkspace)."""

ALGORITHM_BYTES: Final = 64
"""Size of cublasLtMatmulAlgo_t, which cublasLt allows to be stored and restored with the same library."""


MOST_ALIGNMENT: Final = 256
"""Alignment beyond which an algorithm gains nothing, in bytes."""


class Shape(NamedTuple):
    """What the choice depends on, besides GPU and library: operator, shape, alignments in bytes of A, W and C."""

    operator: str
    m: int
    n: int
    k: int
    a: int
    w: int
    c: int

    @classmethod
    def of(cls, operator: str, m: int, n: int, k: int, a: int, w: int, c: int) -> Shape:
        """The shape of a product with A, W and C at these addresses."""
        return cls(operator, m, n, k, alignment(a), alignment(w), alignment(c))

    def rounded_up(self) -> Shape:
        """The shape with m, 1 or more, raised to the next power of two, for which algorithms are chosen and kept."""
        return self._replace(m=1 << (self.m - 1).bit_length())

    def __str__(self) -> str:
        return "|".join(map(str, self))


class AlgorithmCache:
    """`cublaslt.json` in the user's cache: one GPU's and library version's part of it.

    Several processes may use it at once.
    """

    def __init__(self, gpu: str, version: int, path: Path | None = None) -> None:
        """Raises NoCacheFolder where there is no `path`."""
        self._prefix = f"{gpu}|{version}|"
        self._path = path or user_cache() / "cublaslt.json"
        self._known = _read(self._path)

    def get(self, shape: Shape) -> ctypes.Array[Any] | None:
        """The algorithm kept for `shape`, None where there is none."""
        text = self._known.get(self._prefix + str(shape))
        return None if text is None else (ctypes.c_ubyte * ALGORITHM_BYTES)(*bytes.fromhex(text))

    def put(self, shape: Shape, algorithm: ctypes.Array[Any]) -> None:
        """Keep an algorithm. Raises DeviceError where the cache cannot be written."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self._path.with_suffix(".lock")):
                self._known = {**_read(self._path), self._prefix + str(shape): bytes(algorithm).hex()}
                _replace(self._path, json.dumps(self._known, indent=0, sort_keys=True))
        except OSError as error:
            raise DeviceError(
                f"the choice of a matrix product's algorithm cannot be kept in {self._path}: {error.strerror}",
                NAME_ANOTHER,
            ) from error


def alignment(address: int) -> int:
    """The largest power of two, MOST_ALIGNMENT at most, that divides an address."""
    return min(MOST_ALIGNMENT, address & -address) if address else MOST_ALIGNMENT


def _read(path: Path) -> dict[str, str]:
    """The file's entries; a file that cannot be read or holds anything else is as good as none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {key: text for key, text in found.items() if _is_algorithm(text)} if isinstance(found, dict) else {}


def _is_algorithm(text: object) -> bool:
    return isinstance(text, str) and len(text) == 2 * ALGORITHM_BYTES and set(text) <= set("0123456789abcdef")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _replace(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
