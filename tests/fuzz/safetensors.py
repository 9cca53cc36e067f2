"""Fuzz target: weights files. What is accepted has the index that the safetensors library reads in it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fuzz.byte_changes import LIMITS, change_bytes
from fuzz.json_changes import change_json, json_text
from fuzz.target import ACCEPTED, Target, require
from kern.artifact.weights import open_weights

DTYPES = (*("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "U16", "I16", "F16", "BF16"),
          *("U32", "I32", "F32", "U64", "I64", "F64", "C64", "F4", "F6_E2M3", "NEW"))  # fmt: skip
FRAGMENTS: tuple[Any, ...] = (
    *DTYPES,
    *({"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, {"dtype": "U8", "shape": [], "data_offsets": [0, 1]}),
    *([0, 0], [8, 0], [0, 8], [2**63, 2**63], [2**64 - 8, 2**64], [0] * 64, [1] * 65, {"format": "pt"}, {"n": 1}),
)


@cache
def seeds() -> tuple[bytes, ...]:
    """Files that the library wrote: several tensors, one, none; with and without metadata."""
    several = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([1.5, 2], dtype=ml_dtypes.bfloat16),
        "c": np.array(7, dtype=np.int64),
        "d": np.zeros((0, 4), dtype=np.uint8),
        "layer.e": np.array([[1], [2]], dtype=np.float64),
    }
    return save(several, {"format": "pt"}), save({"only": np.zeros(16, np.int32)}), save({})


def change(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change the header's JSON and correct its length; or its length alone, or bytes anywhere."""
    length = int.from_bytes(data[:8], "little")
    kind = random.randrange(10)
    try:
        if kind < 6 and length < len(data):
            header = change_json(random, json.loads(data[8 : 8 + length]), (), FRAGMENTS)
            text = json_text(random, header)
            text += random.choice((b"", b" " * (-len(text) % 8), b" ", b"\n", b"\0"))
            return len(text).to_bytes(8, "little") + text + data[8 + length :]
        if kind < 7:
            return (random.choice((*LIMITS, length + 1, length - 1, len(data) - 8)) % 2**64).to_bytes(
                8, "little"
            ) + data[8:]
    except (ValueError, RecursionError):
        pass  # a header that was damaged before
    return change_bytes(random, data, others)


def run(data: bytes, folder: Path) -> str:
    """Open a weights file."""
    path = folder / "w.safetensors"
    path.write_bytes(data)
    before = len(os.listdir("/proc/self/fd"))
    try:
        with open_weights(path) as weights:
            found = {name: (one.stored_dtype, one.shape, one.offset, one.size) for name, one in weights.tensors.items()}
    finally:
        require(len(os.listdir("/proc/self/fd")) == before, "a file stays open")
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    require(list(found) == list(header), f"other names than the header's: {list(found)}, {list(header)}")
    for name, (dtype, shape, offset, size) in found.items():
        entry = header[name]
        places = [offset - start, offset - start + size]
        require((dtype, list(shape)) == (entry["dtype"], entry["shape"]), f"another tensor than the header's: {name!r}")
        require(places == entry["data_offsets"], f"another place than the header's: {name!r}")
        require(0 <= offset <= offset + size <= len(data), f"a tensor outside the file: {name!r}")
    if all(dtype in DTYPES[:17] for dtype, _, _, _ in found.values()):
        _library_agrees(path, found)
    return ACCEPTED


def _library_agrees(path: Path, found: dict[str, Any]) -> None:
    try:
        with safe_open(path, "np") as library:
            names = set(library.keys())
            slices = {name: library.get_slice(name) for name in names}
            read = {name: (one.get_dtype(), tuple(one.get_shape())) for name, one in slices.items()}
    except SafetensorError as error:
        require(False, f"the library refuses it: {error}")
    require(read == {name: one[:2] for name, one in found.items()}, f"the library reads another index: {read}")


TARGET = Target("safetensors", seeds, change, run, short=400)
