"""Parameter strings and the C ABI's layout of a parameter list."""

from __future__ import annotations

import ctypes
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kern.manifest.params import Param, layout

SCALARS = {
    "i32": ctypes.c_int32,
    "u32": ctypes.c_uint32,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "u8": ctypes.c_uint8,
}
TEXTS = [
    *SCALARS,
    "in ptr",
    "out buffer<bf16>",
    "inout buffer<fp8e4m3> align 16",
    "in ptr align 128",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_parameter_reads_and_writes_as_itself(text: str) -> None:
    assert str(Param.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "i16", "ptr", "buffer<bf16>", "in  ptr", " in ptr", "in ptr ", "in ptr\n", "in buffer<bf17>", "in i32",
     "i32 align 4",
     "in ptr align 0", "in ptr align 3", "in ptr align 16 ", "out buffer<bf16>align 4", "in ptr align 016", "IN ptr"],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    words = "(: the alignment is not a power of two$| is not a parameter such as )"
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))}{words}"):
        Param.parse(text)


@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=24))
def test_the_layout_is_the_compilers(texts: list[str]) -> None:
    fields = [(f"p{i}", SCALARS.get(text, ctypes.c_void_p)) for i, text in enumerate(texts)]
    struct = type("Struct", (ctypes.Structure,), {"_fields_": fields})
    found = layout([Param.parse(text) for text in texts])
    assert found.offsets == tuple(getattr(struct, name).offset for name, _ in fields)
    assert found.sizes == tuple(getattr(struct, name).size for name, _ in fields)


def test_alignment_is_the_dtypes_or_more() -> None:
    assert Param.parse("in buffer<f32>").alignment == 4
    assert Param.parse("in buffer<f32> align 2").alignment == 4
    assert Param.parse("in buffer<f32> align 16").alignment == 16
    assert Param.parse("in ptr").alignment == 1
