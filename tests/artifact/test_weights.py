"""The safetensors index: what the library writes is read, what contradicts itself is refused."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from kern.artifact import open_weights
from kern.artifact.errors import BadWeights, FileMissing, FileUnreadable, UnsafePath
from kern.artifact.weights import MAX_HEADER_BYTES

A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
B = {"dtype": "BF16", "shape": [2, 2], "data_offsets": [8, 16]}


def form(header: Any, data: int = 0, *, pad: int = 0) -> bytes:
    """A file with this header (text, or what becomes JSON) and that many bytes of tensors."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode() + b" " * pad
    return struct.pack("<Q", len(text)) + text + bytes(data)


def refusal(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "w.safetensors"
    path.write_bytes(data)
    with pytest.raises(BadWeights) as caught:
        open_weights(path)
    assert (caught.value.exit_code, str(path) in caught.value.message) == (1, True)
    return caught.value.message


def test_index_of_a_file_that_the_library_wrote(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([1.5], dtype=ml_dtypes.bfloat16),
        "c": np.array(7, dtype=np.int64),
        "d": np.zeros((0, 4), dtype=np.uint8),
        "e": np.array([1, 2], dtype=np.float64),
    }
    path = tmp_path / "w.safetensors"
    path.write_bytes(save(arrays, {"format": "any"}))
    with open_weights(path) as weights:
        assert weights.size == path.stat().st_size
        assert weights.tensors.keys() == arrays.keys()
        for name, array in arrays.items():
            tensor = weights.tensors[name]
            assert (tensor.name, tensor.shape, tensor.size) == (name, array.shape, array.nbytes)
            assert os.pread(weights.fileno(), tensor.size, tensor.offset) == array.tobytes()
        dtypes = {name: (tensor.dtype, tensor.stored_dtype) for name, tensor in weights.tensors.items()}
    assert dtypes == {
        "a": ("f32", "F32"),
        "b": ("bf16", "BF16"),
        "c": ("i64", "I64"),
        "d": ("u8", "U8"),
        "e": (None, "F64"),
    }


def test_a_padded_header_shifts_the_tensors(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    header = json.dumps({"a": A, "b": B})
    path.write_bytes(form(header, 16, pad=256 - 8 - len(header)))
    with open_weights(path) as weights:
        assert [tensor.offset for tensor in weights.tensors.values()] == [256, 264]


def test_dtypes_without_a_name_here_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(form({"a": {"dtype": "F4_FUTURE", "shape": [5], "data_offsets": [0, 3]}}, 3))
    with open_weights(path) as weights:
        assert (weights.tensors["a"].dtype, weights.tensors["a"].size) == (None, 3)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "0 bytes"),
        (b"\x01\0\0\0\0\0\0", "7 bytes"),
        (form({}, 0)[:-1], "truncated"),
        (struct.pack("<Q", 2**63) + b"{}", "claims 9,223,372,036,854,775,808 bytes"),
        (struct.pack("<Q", MAX_HEADER_BYTES + 1) + b"{}", f"claims {MAX_HEADER_BYTES + 1:,} bytes"),
        (struct.pack("<Q", 0), "does not begin with"),
        (form("[]"), "does not begin with"),
        (form(" {}"), "does not begin with"),
        (form("{"), "not valid"),
        (form("{} x"), "not valid"),
        (form('{"a": NaN}'), "NaN is not JSON"),
        (form('{"a": ' + "1" * 5000 + "}"), "not valid"),
        (form("{" + '"a": {' * 100_000), "nests too deeply"),
        (form('{"a": ' + "[" * 100_000), "nests too deeply"),
        (struct.pack("<Q", 3) + b'{"\xff', "not valid"),
        (form(json.dumps({"a": A, "b": A}).replace('"b"', '"a"'), 8), "'a' is in it twice"),
        (form('{"a": {"dtype": "F32", "dtype": "F32"}}', 8), "'dtype' is in it twice"),
        (form({"\ud800": A}, 8), "half of a surrogate pair"),
        (form({"__metadata__": {"a": "\udfff"}}), "half of a surrogate pair"),
        (form({"__metadata__": 1}), "__metadata__ is not an object of strings"),
        (form({"__metadata__": {"a": "b", "c": 1}}), "__metadata__ is not an object of strings"),
        (form({"a": 1}), "does not have exactly"),
        (form({"a": {**A, "more": 1}}, 8), "does not have exactly"),
        (form({"a": {"dtype": "F32", "shape": [2]}}, 8), "does not have exactly"),
        (form({"a": {**A, "dtype": 3}}, 8), "dtype that is not a string"),
        (form({"a": {**A, "shape": 2}}, 8), "has a shape"),
        (form({"a": {**A, "shape": [-2]}}, 8), "has a shape"),
        (form({"a": {**A, "shape": [2.0]}}, 8), "has a shape"),
        (form({"a": {**A, "shape": [True, 2]}}, 8), "has a shape"),
        (form({"a": {**A, "shape": [2**63]}}, 8), "has a shape"),
        (form({"a": {**A, "shape": [1] * 65}}, 8), "has a shape"),
        (form({"a": {**A, "data_offsets": [0]}}, 8), "not a begin and an end"),
        (form({"a": {**A, "data_offsets": [8, 0]}}, 8), "not a begin and an end"),
        (form({"a": {**A, "data_offsets": [0, 8, 16]}}, 16), "not a begin and an end"),
        (form({"a": {**A, "shape": [3]}}, 8), "needs 12 bytes, and the header gives it 8"),
        (form({"a": {**A, "shape": [2**62, 2**62, 2**62]}}, 8), "needs 39"),
        (form({"a": A}, 7), "truncated: tensor 'a' ends at byte"),
        (form({"a": {**A, "shape": [2**60], "data_offsets": [0, 2**62]}}, 8), "truncated"),
        (form({"a": A}, 9), "and the file at"),
        (form({"a": A, "b": A}, 8), "overlaps the one before it"),
        (form({"a": A, "b": {**B, "data_offsets": [4, 12]}}, 12), "overlaps the one before it"),
        (form({"a": {**A, "data_offsets": [1, 9]}}, 9), "leaves a gap before it"),
        (form({"a": A, "b": {**B, "data_offsets": [9, 17]}}, 17), "leaves a gap before it"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    assert said in refusal(tmp_path, data)


def test_names_that_cannot_be_printed_are_shown_escaped(tmp_path: Path) -> None:
    message = refusal(tmp_path, form(r'{"\ud800\u001b[31m": 1}'))
    message.encode()
    assert "\x1b" not in message


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = form({"a": A, "b": B}, 16)
    for length in range(len(whole)):
        refusal(tmp_path, whole[:length])


@settings(max_examples=150)
@given(
    st.dictionaries(
        st.text(max_size=3),
        st.fixed_dictionaries(
            {
                "dtype": st.sampled_from(["F32", "BF16", "U8", "I64"]),
                "shape": st.lists(st.integers(0, 3), max_size=2),
                "data_offsets": st.tuples(st.integers(0, 12), st.integers(0, 12)).map(list),
            }
        ),
        max_size=2,
    ),
    st.integers(0, 12),
)
def test_whatever_is_accepted_is_what_the_library_accepts(
    tmp_path_factory: pytest.TempPathFactory, header: dict[str, Any], data: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "either.safetensors"
    path.write_bytes(form(header, data))
    try:
        with safe_open(path, "np") as library:
            expected = set(library.keys())
    except SafetensorError:
        with pytest.raises(BadWeights):
            open_weights(path)
    else:
        with open_weights(path) as weights:
            assert weights.tensors.keys() == expected


@settings(max_examples=150)
@given(st.integers(0), st.integers(0, 255), st.binary(max_size=40))
def test_changed_and_arbitrary_bytes(
    tmp_path_factory: pytest.TempPathFactory, offset: int, value: int, rest: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.safetensors"
    changed = bytearray(form({"a": A, "b": B}, 16))
    changed[offset % len(changed)] = value
    for data in (bytes(changed), rest, struct.pack("<Q", len(rest)) + rest):
        path.write_bytes(data)
        try:
            with open_weights(path) as weights:
                assert all(0 <= t.offset <= t.offset + t.size <= len(data) for t in weights.tensors.values())
        except BadWeights:
            continue


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(FileMissing, match="does not exist"):
        open_weights(tmp_path / "nowhere")
    with pytest.raises(UnsafePath):
        open_weights(tmp_path / "fifo")
    with pytest.raises(UnsafePath):
        open_weights(tmp_path)
    with pytest.raises(FileUnreadable):
        open_weights(tmp_path / "nul\0nul")
    with pytest.raises(FileUnreadable):
        open_weights(tmp_path / ("x" * 300))


def test_refusals_leave_nothing_open(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"short")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(BadWeights):
        open_weights(path)
    with pytest.raises(UnsafePath):
        open_weights(tmp_path)
    assert os.listdir("/proc/self/fd") == before
