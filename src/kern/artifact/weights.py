"""The index of a safetensors file: names, dtypes, shapes and offsets, checked before any tensor is read.

The format is that of https://github.com/huggingface/safetensors: a little-endian u64 with the header's length, the
header (JSON, padded with spaces), then the tensors' bytes without holes.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Final, NoReturn

from kern.artifact.errors import BadWeights, FileMissing, FileUnreadable, UnsafePath
from kern.artifact.types import TensorInfo
from kern.files.regular_file import NotRegular, open_regular
from kern.manifest.counts import excerpt
from kern.manifest.limits import check_limit

MAX_HEADER_BYTES: Final = 2**23
"""Longest header: enough for about 60,000 tensors."""
MAX_RANK: Final = 64

DTYPES: Final[Mapping[str, str]] = MappingProxyType({
    "BF16": "bf16", "F16": "f16", "F32": "f32", "F8_E4M3": "fp8e4m3",
    "I32": "i32", "U32": "u32", "I64": "i64", "U8": "u8",
})  # fmt: skip
"""The stored dtypes that the manifest has."""

_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "U16": 16, "I16": 16, "F16": 16,
    "BF16": 16, "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_FIX: Final = "export the weights again, or download the file again if it was copied"


class WeightsFile:
    """An open weights file and its index. Made by `open_weights`; closes with its context."""

    def __init__(self, path: Path, descriptor: int, size: int, tensors: Mapping[str, TensorInfo]) -> None:
        self.path = path
        self.size = size
        self.tensors = tensors
        self._descriptor: int | None = descriptor

    @classmethod
    def adopt(cls, descriptor: int, path: Path) -> WeightsFile:
        """Read the index of an open regular file, which is closed with this object, or here on failure.

        `path` only names it. Raises BadWeights, FileUnreadable.
        """
        try:
            size = os.fstat(descriptor).st_size
            return cls(path, descriptor, size, MappingProxyType(_index(descriptor, size, path)))
        except OSError as error:
            os.close(descriptor)
            raise FileUnreadable(f"{path} cannot be read: {error.strerror}", "check the disk") from None
        except BadWeights:
            os.close(descriptor)
            raise

    def __enter__(self) -> WeightsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def fileno(self) -> int:
        """The open file's descriptor. Raises ValueError once closed."""
        if self._descriptor is None:
            raise ValueError("the weights file is closed")
        return self._descriptor

    def close(self) -> None:
        """Close the file; the index stays. A second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def open_weights(path: str | Path) -> WeightsFile:
    """Open a safetensors file and read its index: offsets in TensorInfo are bytes from the file's start.

    Raises FileMissing, FileUnreadable, UnsafePath (not a regular file), BadWeights.
    """
    path = Path(path)
    try:
        descriptor = open_regular(path)
    except FileNotFoundError:
        raise FileMissing(f"{path} does not exist", "give the path of a .safetensors file") from None
    except NotRegular:
        raise UnsafePath(f"{path} is not a regular file", "give the path of a .safetensors file") from None
    except (OSError, ValueError) as error:
        check_limit(error, str(path))
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise FileUnreadable(f"{path} cannot be opened: {reason}", "check its permissions") from None
    return WeightsFile.adopt(descriptor, path)


def _index(descriptor: int, size: int, path: Path) -> dict[str, TensorInfo]:
    start, entries = _header(descriptor, size, path)
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        _refuse(path, "its __metadata__ is not an object of strings")
    tensors = [_tensor(name, entry, start, size, path) for name, entry in entries.items()]
    _check_cover(tensors, start, size, path)
    return {tensor.name: tensor for tensor in tensors}


def _header(descriptor: int, size: int, path: Path) -> tuple[int, dict[str, Any]]:
    """The offset of the first tensor, and the header as JSON."""
    prefix = os.pread(descriptor, 8, 0)
    if len(prefix) < 8:
        _refuse(path, f"it has {size} bytes; the length of the header alone takes 8")
    (length,) = struct.unpack("<Q", prefix)
    if length > MAX_HEADER_BYTES:
        _refuse(path, f"its header claims {length:,} bytes; the limit is {MAX_HEADER_BYTES:,}")
    if 8 + length > size:
        _refuse(path, f"it is truncated: its header claims {length:,} bytes and only {size - 8:,} follow")
    text = os.pread(descriptor, length, 8)
    if not text.startswith(b"{"):
        _refuse(path, "its header does not begin with '{'")
    try:
        entries = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_number)
    except RecursionError:
        _refuse(path, "its header nests too deeply")
    except ValueError as error:  # also not UTF-8, and numbers with thousands of digits
        _refuse(path, f"its header is not valid: {error}")
    return 8 + length, entries


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the name {excerpt(name)!r} is in it twice")
        if any(isinstance(text, str) and _SURROGATE.search(text) for text in (name, value)):
            raise ValueError(f"{excerpt(name)!r} contains half of a surrogate pair")
        members[name] = value
    return members


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _tensor(name: str, entry: Any, start: int, size: int, path: Path) -> TensorInfo:
    """One entry, with an absolute offset, checked against the size of the file and its shape."""
    shown = f"tensor {excerpt(name)!r}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        _refuse(path, f"{shown} does not have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str):
        _refuse(path, f"{shown} has a dtype that is not a string")
    if not _naturals(shape) or len(shape) > MAX_RANK:
        _refuse(path, f"{shown} has a shape that is not a list of at most {MAX_RANK} sizes")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        _refuse(path, f"{shown} has data_offsets that are not a begin and an end")
    begin, end = offsets
    if start + end > size:
        _refuse(path, f"it is truncated: {shown} ends at byte {start + end:,} and the file has {size:,}")
    if dtype in _BITS and (wanted := _bytes(shape, _BITS[dtype])) != end - begin:
        _refuse(
            path,
            f"{shown}, {dtype} {excerpt(str(shape))}, needs {wanted:,} bytes, and the header gives it {end - begin:,}",
        )
    return TensorInfo(name, DTYPES.get(dtype), dtype, tuple(shape), start + begin, end - begin)


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**63 for item in value)


def _bytes(shape: list[int], bits: int) -> int:
    total = bits // 8
    for extent in shape:
        total *= extent
    return total


def _check_cover(tensors: list[TensorInfo], start: int, size: int, path: Path) -> None:
    """Tensors follow each other without gaps or overlaps, and the last one ends at the end of the file."""
    end = start
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.size)):
        if tensor.offset != end:
            how = "overlaps the one before it" if tensor.offset < end else "leaves a gap before it"
            _refuse(path, f"tensor {excerpt(tensor.name)!r} {how}: it begins at byte {tensor.offset:,}, not {end:,}")
        end += tensor.size
    if end != size:
        _refuse(path, f"its tensors end at byte {end:,}, and the file at {size:,}")


def _refuse(path: Path, reason: str) -> NoReturn:
    raise BadWeights(f"{path} is not a usable safetensors file: {reason}", _FIX)
