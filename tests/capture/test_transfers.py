"""Copies and fills: from where, to where, how much, and what the host gave."""

from __future__ import annotations

from typing import Any

from support.recorded_program import Recorder

DEVICE = 0x7100_0000_0000


def without(record: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in ("record", "t", *keys)}


def test_copies_by_kind(record: Recorder) -> None:
    done = record(
        """
        host = program.host_buffer(b"abcdefgh" * 100)
        stream = c.c_void_p(STREAM)
        program.call("cuMemcpyHtoD_v2", DEVICE, host, 8)
        program.call("cuMemcpyHtoDAsync_v2", DEVICE, host, 800, stream)
        program.call("cuMemcpyDtoHAsync_v2", host, DEVICE, 8, stream)
        program.call("cuMemcpyDtoDAsync_v2", DEVICE + 64, DEVICE, 8, stream)
        program.call("cuMemcpyAsync", DEVICE, host, 4, stream)
        program.call("cuMemcpyAsync", DEVICE, host, 0, stream)
        print(host)
        """
    )
    host = int(done.stdout)
    assert [without(copy) for copy in done.of("copy")] == [
        {"stream": 7, "from": host, "to": DEVICE, "bytes": 8, "kind": "HtoD", "data": b"abcdefgh".hex()},
        {"stream": 132, "from": host, "to": DEVICE, "bytes": 800, "kind": "HtoD"},
        {"stream": 132, "from": DEVICE, "to": host, "bytes": 8, "kind": "DtoH"},
        {"stream": 132, "from": DEVICE, "to": DEVICE + 64, "bytes": 8, "kind": "DtoD"},
        {"stream": 132, "from": host, "to": DEVICE, "bytes": 4, "kind": "default", "data": b"abcd".hex()},
    ]


def test_a_copy_of_two_dimensions(record: Recorder) -> None:
    done = record(
        """
        copy = Copy2d(from_x=4, from_y=2, from_type=2, from_device=DEVICE, from_pitch=64,
                      to_x=8, to_y=1, to_type=1, to_host=0x5000, to_pitch=32, width=16, height=3)
        program.call("cuMemcpy2DAsync_v2", c.byref(copy), c.c_void_p(STREAM))
        copy.to_type = 3
        program.call("cuMemcpy2DAsync_v2", c.byref(copy), c.c_void_p(STREAM))
        """
    )
    rows, to_array = done.of("copy")
    assert without(rows, "stream") == {"from": DEVICE + 132, "to": 0x5000 + 40, "bytes": 48, "kind": "DtoH"}
    assert without(to_array, "stream") == {"from": DEVICE + 132, "to": 0, "bytes": 48, "kind": "DtoD"}


def test_a_batch_of_copies_is_recorded_one_by_one(record: Recorder) -> None:
    done = record(
        """
        def words(*values): return (c.c_uint64 * len(values))(*values)
        stream = c.c_void_p(STREAM)
        to, size = words(DEVICE, DEVICE + 8), words(4, 8)
        program.call("cuMemcpyBatchAsync_v2", to, words(DEVICE + 64, DEVICE + 80), size, 2, None, None, 0, stream)
        program.call("cuMemcpyBatchAsync_v2", to, c.c_void_p(0x1000), size, 2, None, None, 0, stream)
        """
    )
    assert [(copy["from"], copy["to"], copy["bytes"]) for copy in done.of("copy")] == [
        (DEVICE + 64, DEVICE, 4),
        (DEVICE + 80, DEVICE + 8, 8),
    ]
    assert done.only("lost")["what"] == "a batch of copies"


def test_a_copy_that_is_not_recorded_is_lost(record: Recorder) -> None:
    done = record('program.call("cuMemcpyDtoA_v2", 1, 0, DEVICE, 8)')
    assert done.only("lost")["what"] == "a copy"
    assert "arrays" in done.log


def test_fills(record: Recorder) -> None:
    done = record(
        """
        stream = c.c_void_p(STREAM)
        program.call("cuMemsetD8Async", DEVICE, 0xab, 100, stream)
        program.call("cuMemsetD32_v2", DEVICE, 0xdeadbeef, 100)
        program.capturing(STREAM, True)
        program.call("cuMemsetD2D16Async", DEVICE, 64, 0xabcd, 10, 3, stream)
        program.call("cuMemsetD8Async", DEVICE, 1, 0, stream)
        """
    )
    assert [without(fill) for fill in done.of("fill")] == [
        {"stream": 132, "to": DEVICE, "bytes": 100, "value": 0xAB, "width": 1},
        {"stream": 7, "to": DEVICE, "bytes": 400, "value": 0xDEADBEEF, "width": 4},
        {"stream": 132, "to": DEVICE, "bytes": 60, "value": 0xABCD, "width": 2, "capturing": True},
    ]


def test_the_source_of_a_copy_is_recorded_where_its_rows_touch(record: Recorder) -> None:
    done = record(
        """
        host = program.host_buffer(bytes(range(64)))
        copy = Copy2d(from_type=1, from_host=host, from_pitch=8, to_type=2, to_device=DEVICE, to_pitch=64,
                      width=8, height=2)
        program.call("cuMemcpy2DAsync_v2", c.byref(copy), c.c_void_p(STREAM))
        copy.from_pitch = 16
        program.call("cuMemcpy2DAsync_v2", c.byref(copy), c.c_void_p(STREAM))
        copy.height = 1
        program.call("cuMemcpy2DAsync_v2", c.byref(copy), c.c_void_p(STREAM))
        """
    )
    assert [copy.get("data") for copy in done.of("copy")] == [
        bytes(range(16)).hex(),
        None,
        bytes(range(8)).hex(),
    ]
