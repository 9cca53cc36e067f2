"""What may be written to an input, and where it comes to be."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import kern
from kern.manifest.builder import ManifestBuilder
from kern.runtime.conversion import WrongDType, WrongValue
from kern.runtime.executable import Executable
from kern.runtime.shapes import WrongShape
from kern.runtime.symbols import SymbolOutOfBounds
from support.artifacts import toy_kernels, write_artifact
from support.inputs import BOUNDS, DTYPES, FRAMES, HEIGHT, WIDTH
from support.shown import without_address
from support.toy import MODULE, single


def video(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def flat(executable: Executable) -> np.ndarray:
    """All the memory of `video`."""
    return executable.read("video").reshape(-1)


def test_an_array_has_the_buffers_shape_at_the_values(executable: Executable) -> None:
    executable.write("video", whole := video(*BOUNDS))
    np.testing.assert_array_equal(executable.read("video"), whole)
    for shape in ((2, 3, 5), (4, 2, 5), (1, 1, 1), (4, 3, 2), BOUNDS):
        values = dict(zip("fhw", shape, strict=True))
        before = flat(executable)
        executable.write("video", part := video(*shape), values)
        np.testing.assert_array_equal(executable.read("video", values), part)
        np.testing.assert_array_equal(flat(executable)[part.size :], before[part.size :])


@pytest.mark.parametrize(
    "shape", [(2, 2), (2, 3, 5), (4, 3), (60,), (4, 3, 5, 1), (1, 4, 3, 5), (5, 3, 5), (4, 5, 3), ()]
)
def test_another_shape_is_refused_and_writes_nothing(executable: Executable, shape: tuple[int, ...]) -> None:
    executable.write("video", whole := video(*BOUNDS))
    with pytest.raises(WrongShape, match=r"'video' has shape \[4, 3, 5\] at its symbols' bounds, but the array has "):
        executable.write("video", np.zeros(shape, np.float32))
    if shape != (2, 3, 5):
        with pytest.raises(WrongShape, match=r"'video' has shape \[2, 3, 5\] at these values, but the array has "):
            executable.write("video", np.zeros(shape, np.float32), {"f": 2, "h": 3, "w": 5})
    np.testing.assert_array_equal(executable.read("video"), whole)


def test_fewer_rows_need_symbol_values(executable: Executable) -> None:
    with pytest.raises(WrongShape, match="give the symbol values of the call that reads it, or use `at`"):
        executable.write("video", video(2, 3, 5))
    executable.write("video", video(2, 3, 5), {"f": 2, "h": 3, "w": 5})


def test_a_call_may_name_symbols_beyond_what_a_buffer_has(tmp_path: Path) -> None:
    b = ManifestBuilder("narrow")
    n, m = b.symbol("n", max=8), b.symbol("m", max=4)
    b.kernel("copy", single("copy_bytes", ("out buffer<u8>", "in buffer<u8>", "i32")))
    b.program("wide").dispatch("copy", b.output("y", "u8", (n,)), b.input("x", "u8", (n,)), n)
    b.program("narrow", n=(1, 1)).dispatch("copy", b.output("w", "u8", (m,)), b.input("v", "u8", (m,)), n)
    with kern.load(write_artifact(tmp_path / "narrow", b.build(), {MODULE: toy_kernels()})) as executable:
        executable.write("v", [1, 2], {"n": 8, "m": 2})
        for values in ({"n": 9, "m": 2}, {"n": 1, "m": 5}):
            with pytest.raises(SymbolOutOfBounds):
                executable.write("v", [1, 2], values)
        executable.run("narrow", {"n": 1, "m": 2})
        assert executable.read("w", {"n": 8, "m": 1}).tolist() == [1]


def test_one_row_of_a_table_is_replaced_at_a_time(tmp_path: Path) -> None:
    b = ManifestBuilder("table")
    n, m = b.symbol("n", max=8), b.symbol("m", max=6)
    b.kernel("copy", single("copy_bytes", ("out buffer<i32>", "in buffer<i32>", "i32")))
    b.program("run").dispatch("copy", b.output("y", "i32", (n, m)), b.input("x", "i32", (n, m)), 4 * 8 * 6)
    folder, rng = write_artifact(tmp_path / "table", b.build(), {MODULE: toy_kernels()}), np.random.default_rng(1)
    with kern.load(folder) as executable:
        for width in (6, 4):
            expected = rng.integers(0, 99, (5, width), np.int32)
            executable.write("x", expected, values := {"n": 5, "m": width})
            for _ in range(20):
                row = int(rng.integers(5))
                expected[row] = rng.integers(0, 99, width)
                executable.write("x", expected[row : row + 1], values, at=row)
                executable.run("run", values)
                np.testing.assert_array_equal(executable.read("y", values), expected)
            with pytest.raises(WrongShape, match=r"an array of \[1, 3\] does not fit from row 0 on"):
                executable.write("x", [[1, 2, 3]], values, at=0)


def test_at_counts_rows(executable: Executable) -> None:
    executable.write("video", whole := video(*BOUNDS).copy())
    for row, count in ((1, 2), (3, 1), (2, 2), (1, 0), (4, 0), (0, 1), (0, 3), (0, 4), (0, 0)):
        executable.write("video", part := video(count, 3, 5), at=row)
        whole[row : row + count] = part
        np.testing.assert_array_equal(executable.read("video"), whole)
    values = {"f": 3, "h": 2, "w": 2}
    executable.write("video", small := video(3, 2, 2), values)
    for at in (np.int32(2), 0, np.int64(0)):
        executable.write("video", part := video(1, 2, 2), values, at=at)
        small[at] = part
        np.testing.assert_array_equal(executable.read("video", values), small)
    executable.write("fixed", fixed := video(4, 5))
    executable.write("fixed", rows := video(2, 5), at=1)
    fixed[1:3] = rows
    np.testing.assert_array_equal(executable.read("fixed"), fixed)


@pytest.mark.parametrize(
    ("shape", "at"),
    [
        ((2, 3, 5), 3),
        ((5, 3, 5), 0),
        ((3, 5), 0),
        ((2, 5, 3), 0),
        ((1, 3, 5), 4),
        ((1, 3, 5), 2**70),
        ((0, 3, 5), 5),
        ((1, 5), 1),
        ((5,), 1),
        ((), 1),
        ((1, 5, 3), 1),
    ]
    + [((1, 3, 5), at) for at in (-1, True, False, 1.0, 0.0, "1", np.float32(1), np.True_, [1])],
)
def test_rows_out_of_range_are_refused(executable: Executable, shape: tuple[int, ...], at: Any) -> None:
    executable.write("video", whole := video(*BOUNDS))
    with pytest.raises(WrongShape, match="row"):
        executable.write("video", np.zeros(shape, np.float32), at=at)
    np.testing.assert_array_equal(executable.read("video"), whole)


def test_a_strided_array_is_written_as_its_values(executable: Executable) -> None:
    wide = video(FRAMES, 2 * HEIGHT, WIDTH + 2)
    for view in (wide[:, ::2, 1:6], wide[::-1, ::-2, 6:1:-1], np.asfortranarray(wide[:, ::2, 1:6])):
        executable.write("video", view)
        np.testing.assert_array_equal(executable.read("video"), view)


INTEGERS = {"i32": (-(2**31), 2**31 - 1), "u32": (0, 2**32 - 1), "i64": (-(2**63), 2**63 - 1), "u8": (0, 255)}


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_of_any_kind_are_accepted_within_their_range(executable: Executable, dtype: str) -> None:
    least, most = INTEGERS[dtype]
    for given in (
        [least, 0, 1, most],
        (least, 0, 1, most),
        [np.int8(0), np.uint64(1), np.array(2), most],
        np.array([3, 2, 1, 0], np.uint64),
        np.array([3, 2, 1, 0], ">i2"),
        np.array([most, 0, 0, least], ">i8") if dtype != "i64" else np.array([7, 0, 0, 0], np.int32),
        [*map(np.int64, [1, 2, 3, 4])],
    ):
        executable.write(dtype, given)
        assert executable.read(dtype).tolist() == [int(value) for value in given]
    for wrong in (least - 1, most + 1, 2**64, -(2**64), 10**400):
        with pytest.raises(WrongValue, match=f"'{dtype}' is {dtype}, which cannot hold"):
            executable.write(dtype, [0, wrong, 0, 0])
    for wide in (np.uint64, np.int64):
        held = np.iinfo(wide)
        for wrong in (held.min, held.max):
            if not least <= wrong <= most:
                with pytest.raises(WrongValue, match=f"give values in {least}…{most}"):
                    executable.write(dtype, np.array([0, wrong, 0, 0], wide))


def test_floats_are_accepted_for_f32(executable: Executable) -> None:
    for given in ([0.1, -0.0, 1e-50, 3.4e38], [1, 2**24, -(2**127), 0.5], [np.inf, -np.inf, np.nan, np.float64(1 / 3)]):
        executable.write("f32", given)
        np.testing.assert_array_equal(executable.read("f32"), np.array(given, np.float64).astype(np.float32))
    executable.write("f32", np.array([1, 2, 3, 4], ">f4"))
    assert executable.read("f32").tolist() == [1, 2, 3, 4]
    for wrong in (1e39, -3.5e38, 2**24 + 1, 2**128, 10**400, np.float64(1e300)):
        with pytest.raises(WrongValue, match=r"f32, which cannot hold .*, value 2 of the list"):
            executable.write("f32", [0, 0.5, wrong, 0])


def test_lists_are_nested_like_the_shape(executable: Executable) -> None:
    executable.write("fixed", [[1.5] * 5, [2] * 5, (3,) * 5, np.arange(5)])
    assert executable.read("fixed")[:, 1].tolist() == [1.5, 2, 3, 1]
    for wrong in ([1.0] * 20, [[1.0] * 5] * 3, [[[1.0]] * 5] * 4, []):
        with pytest.raises(WrongShape):
            executable.write("fixed", wrong)


class Odd:
    """Neither an array nor a list."""


WRONG_INTEGERS: list[Any] = [
    [0, 1.0, 2, 3],
    [0, True, 2, 3],
    [0, None, 2, 3],
    [0, "1", 2, 3],
    [0, b"1", 2, 3],
    [0, [1], 2, 3],
    [0, [1, 2], 2, 3],
    [0, {}, 2, 3],
    [0, 1j, 2, 3],
    [0, Decimal(1), 2, 3],
    [0, np.True_, 2, 3],
    [0, np.float32(1), 2, 3],
    [np.zeros(2), np.zeros(3), 2, 3],
    [np.zeros((2, 2)), np.zeros((2, 3))],
    np.zeros(4),
    np.zeros(4, bool),
    np.zeros(4, np.float32),
    np.zeros(4, np.complex64),
    np.zeros(4, ml_dtypes.bfloat16),
    np.zeros(4, "M8[s]"),
    np.zeros(4, "S4"),
    np.zeros(4, "U4"),
    np.zeros(4, [("a", "i4")]),
    np.array([0, 1, 2, 3], object),
    np.ma.masked_array([0, 1, 2, 3], mask=[0, 1, 0, 0]),
    np.True_,
]
WRONG_ANYWHERE: list[Any] = [
    None,
    "0123",
    b"0123",
    bytearray(4),
    memoryview(bytes(4)),
    {0: 1},
    {1, 2},
    Odd(),
    range(4),
    True,
    iter([1]),
]


@pytest.mark.parametrize("dtype", ["i32", "i64", "u8"])
@pytest.mark.parametrize("given", [*WRONG_INTEGERS, *WRONG_ANYWHERE], ids=without_address)
def test_what_is_not_an_integer_is_refused(executable: Executable, dtype: str, given: Any) -> None:
    with pytest.raises(WrongDType, match=f"'{dtype}' is"):
        executable.write(dtype, given)
    assert not executable.read(dtype).any()


@pytest.mark.parametrize(
    "given",
    [
        *WRONG_ANYWHERE,
        [0.5, True, 2, 3],
        [0.5, None, 2, 3],
        [0.5, "1", 2, 3],
        [0.5, 1j, 2, 3],
        np.zeros(4, np.float64),
        np.zeros(4, np.float16),
        np.zeros(4, np.int32),
        np.zeros(4, object),
        np.zeros(4, ml_dtypes.bfloat16),
    ],
    ids=without_address,
)
def test_what_is_not_a_float_is_refused(executable: Executable, given: Any) -> None:
    with pytest.raises(WrongDType, match="'f32' is"):
        executable.write("f32", given)
    assert not executable.read("f32").any()


@pytest.mark.parametrize("dtype", ["bf16", "f16", "fp8e4m3"])
def test_smaller_floats_need_arrays_of_their_dtype(executable: Executable, dtype: str) -> None:
    executable.write(dtype, ones := np.ones(4, DTYPES[dtype]))
    np.testing.assert_array_equal(executable.read(dtype), ones)
    for given in ([1.0] * 4, np.ones(4, np.float32), np.ones(4, np.uint16), np.ones(4, np.uint8), np.ones(4, "V2")):
        with pytest.raises(WrongDType, match=f"'{dtype}' is {dtype}.*give an array of "):
            executable.write(dtype, given)
