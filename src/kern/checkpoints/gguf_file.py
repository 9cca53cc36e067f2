"""The header of a GGUF file: metadata and the index of its tensors, with bounds on what is read.

The format is https://github.com/ggml-org/ggml/blob/master/docs/gguf.md: magic, version, counts, key-value pairs,
the names, shapes, types and offsets of the tensors, then their bytes, each tensor aligned.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.config import shown
from kern.files.regular_file import open_regular
from kern.manifest.errors import install_hint

MAGIC: Final = b"GGUF"
MAX_HEADER_BYTES: Final = 2**26
"""Longest header: several times that of the largest known vocabularies."""
MAX_VALUES: Final = 2**22
"""Entries of all lists together, about 150 MB: several times those of the largest known vocabularies."""
_MAX_DEPTH: Final = 4
_MAX_DIMENSIONS: Final = 4
_BLOCK: Final = 2**20
_VERSIONS: Final = (2, 3)
_ALIGNMENT: Final = 32

_NUMBERS: Final = {
    0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_STRING: Final = 8
_ARRAY: Final = 9


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor in a file: shape as [outputs, inputs], name of its type, and where its bytes are."""

    name: str
    shape: tuple[int, ...]
    type: str
    row_bytes: int
    path: Path
    offset: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    """The header of one file."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


def is_gguf(path: Path) -> bool:
    """Whether a regular file begins as GGUF does."""
    try:
        with open(open_regular(path), "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def read_gguf(path: Path) -> GgufFile:
    """Read the header of the file at `path`. Raises CheckpointError."""
    try:
        with open(open_regular(path), "rb") as file:
            return _Header(path, file.fileno(), os.fstat(file.fileno()).st_size).read()
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror or error}", "give a GGUF file that you can read"
        ) from error
    except _Damaged as error:
        raise CheckpointError(f"{path} is not a complete GGUF file: {error}") from None


def gguf_library() -> Any:
    """The package gguf, which knows the types of tensors. Raises CheckpointError where it is not installed."""
    try:
        import gguf
    except ImportError:
        raise CheckpointError(
            "reading GGUF needs the package gguf, which is not installed", install_hint("gguf")
        ) from None
    return gguf


class _Damaged(ValueError):
    """What is wrong with the header."""


class _Header:
    """A cursor over the bytes of a header, which are read as needed."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._size = size
        self._bytes = bytearray()
        self._at = 0
        self._values = 0

    def read(self) -> GgufFile:
        if self._take(len(MAGIC)) != MAGIC:
            raise _Damaged("it does not begin with GGUF")
        version = self._number("<u4")
        if version & 0xFFFF == 0:
            raise CheckpointError(
                f"{self._path} is in big-endian byte order", "convert it with `gguf-convert-endian FILE little`"
            )
        if version not in _VERSIONS:
            raise CheckpointError(f"{self._path} is GGUF of version {version}", "versions 2 and 3 can be read")
        tensors, pairs = self._number("<u8"), self._number("<u8")
        metadata: dict[str, Any] = {}
        for _ in range(pairs):
            key = self._string("a key")
            if key in metadata:
                raise _Damaged(f"it has {shown(key)} twice")
            metadata[key] = self._value(self._number("<u4"), key, 0)
        return GgufFile(self._path, metadata, self._index(tensors, metadata))

    def _index(self, count: int, metadata: dict[str, Any]) -> dict[str, GgufTensor]:
        """The tensors, contiguous as llama.cpp requires: each begins where the one before it ends."""
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise _Damaged(f"general.alignment is {shown(alignment)}, not a power of two")
        entries = [self._entry() for _ in range(count)]
        start, end = -(-self._at // alignment) * alignment, 0
        tensors: dict[str, GgufTensor] = {}
        for name, shape, type_name, row_bytes, offset in entries:
            if name in tensors:
                raise _Damaged(f"it has the tensor {shown(name)} twice")
            if offset != end:
                raise _Damaged(f"tensor {shown(name)} begins at byte {offset:,} of the tensors, not at {end:,}")
            size = row_bytes * math.prod(shape[:-1])
            if start + end + size > self._size:
                raise _Damaged(f"it ends within tensor {shown(name)}")
            tensors[name] = GgufTensor(name, shape, type_name, row_bytes, self._path, start + offset)
            end += -(-size // alignment) * alignment
        return tensors

    def _entry(self) -> tuple[str, tuple[int, ...], str, int, int]:
        name = self._string("a tensor's name")
        rank = self._number("<u4")
        if not 1 <= rank <= _MAX_DIMENSIONS:
            raise _Damaged(f"tensor {shown(name)} has {rank} dimensions")
        shape = tuple(self._number("<u8") for _ in range(rank))[::-1]
        number, offset = self._number("<u4"), self._number("<u8")
        type_name, per_block, block_bytes = _type(number, name)
        if 0 in shape or shape[-1] % per_block:
            raise _Damaged(f"tensor {shown(name)} has the shape {list(shape)}, which {type_name} cannot hold")
        return name, shape, type_name, shape[-1] // per_block * block_bytes, offset

    def _value(self, kind: int, key: str, depth: int) -> Any:
        if kind == _STRING:
            return self._string(shown(key))
        if kind == _ARRAY:
            return self._array(key, depth)
        if kind not in _NUMBERS:
            raise _Damaged(f"{shown(key)} has a value of the unknown type {kind}")
        return self._number(_NUMBERS[kind])

    def _array(self, key: str, depth: int) -> list[Any]:
        kind, count = self._number("<u4"), self._number("<u8")
        self._values += count
        if depth == _MAX_DEPTH:
            raise _Damaged(f"{shown(key)} has lists nested too deeply")
        if count > self._size - self._at:
            raise _Damaged(f"it ends within {shown(key)}")
        if self._values > MAX_VALUES:
            raise _Damaged(f"its lists have more than {MAX_VALUES:,} entries")
        if kind in _NUMBERS:
            dtype = np.dtype(_NUMBERS[kind])
            numbers: list[Any] = np.frombuffer(self._take(count * dtype.itemsize, shown(key)), dtype).tolist()
            return numbers
        if kind == _STRING:
            return self._strings(count, shown(key))
        return [self._value(kind, key, depth + 1) for _ in range(count)]

    def _string(self, what: str) -> str:
        return self._strings(1, what)[0]

    def _strings(self, count: int, what: str) -> list[str]:
        """Consecutive strings. Reading vocabularies spends its time in this loop."""
        content, length, found = self._bytes, _CODES["<u8"][0].unpack_from, []
        end = self._at
        for _ in range(count):
            start = end + 8
            if start > len(content):
                self._need(start, what)
            end = start + length(content, start - 8)[0]
            if end > len(content):
                self._need(end, what)
            try:
                found.append(content[start:end].decode())
            except UnicodeDecodeError:
                raise _Damaged(f"{what} is not UTF-8 near byte {start:,}") from None
        self._at = end
        return found

    def _number(self, dtype: str) -> Any:
        code, size = _CODES[dtype]
        at = self._at
        self._need(at + size, "its header")
        self._at = at + size
        return code.unpack_from(self._bytes, at)[0]

    def _take(self, size: int, what: str = "its header") -> bytes:
        self._need(self._at + size, what)
        self._at += size
        return bytes(memoryview(self._bytes)[self._at - size : self._at])

    def _need(self, end: int, what: str) -> None:
        if end <= len(self._bytes):
            return
        if end > self._size:
            raise _Damaged(f"it ends within {what}")
        if end > MAX_HEADER_BYTES:
            raise _Damaged(f"its header has more than {MAX_HEADER_BYTES:,} bytes")
        wanted = min(max(end, len(self._bytes) + _BLOCK), self._size)
        while len(self._bytes) < wanted:
            block = os.pread(self._descriptor, wanted - len(self._bytes), len(self._bytes))
            if not block:
                raise _Damaged(f"it ends within {what}")
            self._bytes += block


_CODES: Final = {
    dtype: (struct.Struct(code), struct.calcsize(code))
    for dtype, code in {
        "u1": "<B", "i1": "<b", "<u2": "<H", "<i2": "<h", "<u4": "<I", "<i4": "<i", "<f4": "<f", "?": "<?",
        "<u8": "<Q", "<i8": "<q", "<f8": "<d",
    }.items()
}  # fmt: skip


def _type(number: int, name: str) -> tuple[str, int, int]:
    """A type's name, and the elements and bytes of a block."""
    library = gguf_library()
    try:
        type = library.GGMLQuantizationType(number)
    except ValueError:
        raise _Damaged(f"tensor {shown(name)} has the unknown type {number}") from None
    per_block, block_bytes = library.GGML_QUANT_SIZES[type]
    return str(type.name), per_block, block_bytes
