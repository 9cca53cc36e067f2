"""The cublasLt algorithm of each shape, kept in the user's cache so that two loads do the same arithmetic."""

from __future__ import annotations

import ctypes
import json
import warnings
from pathlib import Path
from typing import Any, Final, NamedTuple

from kern.device.base import DeviceError
from kern.files.regular_file import whole_file
from kern.files.user_cache import (
    NAME_ANOTHER,
    CacheIgnored,
    UntrustedCache,
    locked,
    make_cache,
    open_trusted,
    user_cache,
)

WORKSPACE_BYTES: Final = 32 << 20
"""Workspace that every algorithm may use, NVIDIA's recommendation for Hopper (cuBLAS, cublasSetWorkspace)."""

ALGORITHM_BYTES: Final = 64
"""Size of cublasLtMatmulAlgo_t, which cublasLt allows to be stored and restored with the same library."""

MAX_BYTES: Final = 2**22
"""Largest cache that is read: room for some 20,000 shapes."""

MAX_ALIGNMENT: Final = 256
"""Alignment in bytes beyond which no algorithm is faster."""


class Shape(NamedTuple):
    """What the choice depends on besides GPU and library: operator, shape, alignments in bytes of A, W and C."""

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
    """The entries of one GPU and library version in `cublaslt.json` in the user's cache.

    Several processes may use it at once.
    """

    def __init__(self, gpu: str, version: int, path: Path | None = None) -> None:
        """Raises NoCacheFolder where there is no `path`."""
        self._prefix = f"{gpu}|{version}|"
        self._path = path or user_cache() / "cublaslt.json"
        self._known = _read(self._path)

    def get(self, shape: Shape) -> ctypes.Array[Any] | None:
        """The algorithm kept for `shape`, None where no algorithm is kept."""
        text = self._known.get(self._prefix + str(shape))
        return None if text is None else (ctypes.c_ubyte * ALGORITHM_BYTES)(*bytes.fromhex(text))

    def put(self, shape: Shape, algorithm: ctypes.Array[Any]) -> None:
        """Keep an algorithm, only in this object where the cache cannot be trusted.

        Raises DeviceError where the cache cannot be written.
        """
        new = {self._prefix + str(shape): bytes(algorithm).hex()}
        self._known |= new
        try:
            make_cache(self._path.parent)
            with locked(self._path.with_suffix(".lock")):
                self._known = _fitting({**_read(self._path), **new})
                with whole_file(self._path, 0o600) as file:
                    file.write(_as_text(self._known).encode())
        except UntrustedCache as error:
            _ignore(f"a matrix product's algorithm is not kept: {error.message}")
        except OSError as error:
            raise DeviceError(
                f"the algorithm of a matrix product cannot be written to {self._path}: {error.strerror}",
                NAME_ANOTHER,
            ) from error


def alignment(address: int) -> int:
    """The largest power of two, MAX_ALIGNMENT at most, that divides an address."""
    return min(MAX_ALIGNMENT, address & -address) if address else MAX_ALIGNMENT


def _read(path: Path) -> dict[str, str]:
    """The file's entries. A file with other content, or one that cannot be trusted, is ignored with a warning."""
    try:
        with open_trusted(path) as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UntrustedCache as error:
        return _ignore(error.message)
    except OSError as error:
        return _ignore(f"{path} is not used: {error.strerror}")
    if len(data) > MAX_BYTES:
        return _ignore(f"{path} is not used: it has more than {MAX_BYTES:,} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        return _ignore(f"{path} is not used: it is damaged ({error})")
    if not isinstance(found, dict):
        return _ignore(f"{path} is not used: it is damaged (not an object)")
    return {key: text for key, text in found.items() if _is_algorithm(text)}


def _ignore(message: str) -> dict[str, str]:
    warnings.warn(message, CacheIgnored, stacklevel=2)
    return {}


def _fitting(entries: dict[str, str]) -> dict[str, str]:
    """The entries, fewer of them where the file would be larger than is read; the last one is kept."""
    while len(_as_text(entries)) > MAX_BYTES:
        entries = dict(list(entries.items())[len(entries) // 2 :])
    return entries


def _as_text(entries: dict[str, str]) -> str:
    return json.dumps(entries, indent=0, sort_keys=True)


def _is_algorithm(text: object) -> bool:
    return isinstance(text, str) and len(text) == 2 * ALGORITHM_BYTES and set(text) <= set("0123456789abcdef")
