"""What is recorded of a launch: its shape, its stream, its parameters however passed, and where they point."""

from __future__ import annotations

import struct
import sys

import pytest

from support.recorded_program import Recorder

DEVICE = 0x7100_0000_0000
MODULE = 'module = program.module(b"\\0k\\0")\n'


def hexed(value: int, size: int = 8) -> str:
    return value.to_bytes(size, "little").hex()


def test_the_shape_of_a_launch(record: Recorder) -> None:
    done = record(MODULE + 'program.launch(program.function(module, b"k"), stream=STREAM, grid=70000)')
    launch = done.only("launch")
    assert launch | {"t": 0, "thread": 0} == {
        "record": "launch",
        "t": 0,
        "thread": 0,
        "context": 1,
        "stream": 0x20 + 100,
        "kernel": 0,
        "grid": [70000, 2, 3],
        "block": [128, 4, 1],
        "shared": 512,
        "via": "params",
        "params": [],
        "pointers": [],
    }
    assert launch["t"] > done.records[0]["t"]


def test_the_kernel_and_its_layout(record: Recorder) -> None:
    done = record(
        MODULE + 'program.launch(program.function(module, b"k", (4, 8, 1, 16), registers=168), [bytes(16)] * 4)'
    )
    kernel = done.only("kernel")
    assert kernel["attributes"]["registers"] == 168
    assert kernel["attributes"]["max_threads"] == 1024
    assert kernel["params"] == [[0, 4], [8, 8], [16, 1], [24, 16]]
    assert kernel["layout"] == "driver"


@pytest.mark.parametrize("make", ["program.function(module", "program.kernel(program.library(b'\\0k\\0')"])
def test_parameters_passed_one_by_one(record: Recorder, make: str) -> None:
    done = record(
        MODULE
        + f'kernel = {make}, b"k", (8, 4, 1))\nprogram.launch(kernel, (word(DEVICE + 64), word(7, 4), word(1, 1)))'
    )
    launch = done.only("launch")
    assert launch["via"] == "params"
    assert launch["params"] == [hexed(DEVICE + 64), hexed(7, 4), hexed(1, 1)]
    assert launch["pointers"] == [{"param": 0, "at": 0, "memory": "device", "range": [DEVICE, 1 << 20]}]


PACKED = """
module = program.module(b"\\0k\\0")
function = program.function(module, b"k", (4, 8, 24))
packed = word(5, 4) + bytes(4) + word(DEVICE) + word(1) + word(DEVICE + 8) + word(2)
extra = program.extra(program.host_buffer(packed), len(packed))
"""


def test_a_packed_buffer_is_cut_by_the_layout(record: Recorder) -> None:
    launch = record(PACKED + "program.launch_raw(function, None, extra)").only("launch")
    assert launch["via"] == "extra"
    assert launch["params"] == [hexed(5, 4), hexed(DEVICE), hexed(1) + hexed(DEVICE + 8) + hexed(2)]
    assert [(p["param"], p["at"]) for p in launch["pointers"]] == [(1, 0), (2, 8)]
    assert "bytes" not in launch


def test_a_packed_buffer_without_a_layout_is_kept_whole(record: Recorder) -> None:
    done = record(PACKED + 'program.call("fake_no_param_info")\nprogram.launch_raw(function, None, extra)')
    launch, kernel = done.only("launch"), done.only("kernel")
    assert (kernel["params"], kernel["layout"]) == (None, None)
    assert launch["params"] is None
    assert launch["bytes"] == hexed(5) + hexed(DEVICE) + hexed(1) + hexed(DEVICE + 8) + hexed(2)
    assert [p["at"] for p in launch["pointers"]] == [8, 24]
    assert all("param" not in p for p in launch["pointers"])


def test_a_packed_buffer_shorter_than_the_layout_is_kept_whole(record: Recorder) -> None:
    launch = record(PACKED + "program.kept[-2].value = 16\nprogram.launch_raw(function, None, extra)").only("launch")
    assert launch["params"] is None
    assert launch["bytes"] == hexed(5) + hexed(DEVICE)


def test_parameters_without_a_layout_are_unknown(record: Recorder) -> None:
    done = record(
        MODULE
        + """program.call("fake_no_param_info")
program.launch(program.function(module, b"k", (8,)), (word(DEVICE),))"""
    )
    launch = done.only("launch")
    assert (launch["via"], launch["params"]) == ("params", None)
    assert "pointers" not in launch
    assert not done.of("lost")


def test_memory_that_cannot_be_read_is_lost_and_harms_nothing(record: Recorder) -> None:
    done = record(
        MODULE
        + """function = program.function(module, b"k", (8, 8))
program.launch_raw(function, (c.c_void_p * 2)(0x1000, 0xdead0000), None)
program.launch_raw(function, c.c_void_p(0x2000), None)
program.launch_raw(function, None, program.extra(0x3000, 16))
program.launch_raw(function, None, c.c_void_p(0x4000))
print("on")"""
    )
    assert done.stdout == "on\n"
    assert [launch["params"] for launch in done.of("launch")] == [None] * 4
    assert len(done.of("lost")) == 4
    assert len(done.log.splitlines()) == 4


def test_a_pointer_is_classed_by_the_driver_or_by_the_mappings(record: Recorder) -> None:
    done = record(
        MODULE
        + """heap, pinned = program.host_buffer(b"heap" + bytes(400)), program.host_buffer(b"pinned" + bytes(400))
program.allocation(pinned, 16, HOST_MEMORY)
program.allocation(DEVICE + (1 << 30), 4096, DEVICE_MEMORY, 1)
values = [DEVICE + 4095, DEVICE + (1 << 30), pinned + 4, heap, 0x7fff_ffff_0000_1000, 0x1234_5678_9abc, 12, 2**64 - 1]
program.launch(program.function(module, b"k", (8,) * 8), [word(value) for value in values])
print(pinned, heap)"""
    )
    pinned, heap = map(int, done.stdout.split())
    device, managed, page_locked, host = done.only("launch")["pointers"]
    assert device == {"param": 0, "at": 0, "memory": "device", "range": [DEVICE, 1 << 20]}
    assert managed == {"param": 1, "at": 0, "memory": "managed", "range": [DEVICE + (1 << 30), 4096]}
    assert page_locked == {
        "param": 2,
        "at": 0,
        "memory": "pinned",
        "range": [pinned, 16],
        "data": (b"ed" + bytes(10)).hex(),
    }
    assert (host["param"], host["memory"]) == (3, "host")
    assert host["data"] == (b"heap" + bytes(60)).hex()
    base, size = host["range"]
    assert base <= heap < base + size


def test_what_lies_behind_a_pointer_ends_with_its_mapping(record: Recorder) -> None:
    done = record(
        MODULE
        + """import mmap
libc = c.CDLL(None)
libc.mmap.restype = c.c_void_p
pages = libc.mmap(None, c.c_size_t(8192), 3, 0x22, -1, c.c_size_t(0))
libc.munmap(c.c_void_p(pages + 4096), c.c_size_t(4096))
end = pages + 4096
c.memmove(end - 24, bytes(range(24)), 24)
program.launch(program.function(module, b"k", (8, 8)), (word(end - 24), word(end)))"""
    )
    (pointer,) = done.only("launch")["pointers"]
    assert pointer["data"] == bytes(range(24)).hex()


def test_pointers_are_found_at_aligned_words_of_a_struct_alone(record: Recorder) -> None:
    done = record(
        MODULE
        + """struct = bytes(4) + word(DEVICE) + bytes(4) + word(DEVICE + 8) + word(DEVICE + 16)
program.launch(program.function(module, b"k", (4, 32)), (bytes(4), struct))"""
    )
    launch = done.only("launch")
    assert [(p["param"], p["at"]) for p in launch["pointers"]] == [(1, 16), (1, 24)]


def test_host_memory_inside_a_struct_is_counted_alone(record: Recorder) -> None:
    done = record(
        MODULE
        + """host, pinned = program.host_buffer(bytes(64)), program.host_buffer(bytes(64))
program.allocation(pinned, 64, HOST_MEMORY)
struct = word(host) + word(DEVICE) + word(host + 8) + word(pinned) + word(0xdead_0000)
function = program.function(module, b"k", (40,))
program.launch(function, (struct,))
program.call("fake_no_param_info")
packed = program.extra(program.host_buffer(struct), len(struct))
program.launch_raw(program.function(module, b"k"), None, packed)"""
    )
    for launch in done.of("launch"):
        assert [(p["at"], p["memory"]) for p in launch["pointers"]] == [(8, "device"), (24, "pinned")]
        assert all("data" not in p for p in launch["pointers"])
        assert launch["host_words"] == 2


ATTRIBUTES = """
function = program.function(program.module(b"\\0k\\0"), b"k")
def launch(*attributes):
    listed = (LaunchAttribute * max(1, len(attributes)))(*(LaunchAttribute(id, 0, value) for id, value in attributes))
    config = LaunchConfig(5, 6, 7, 32, 2, 1, 99, STREAM, c.addressof(listed), len(attributes))
    program.call("cuLaunchKernelEx", c.byref(config), function, program.pack(()), None)
"""


def test_the_attributes_of_a_launch(record: Recorder) -> None:
    done = record(ATTRIBUTES + "launch((4, (2, 1, 1)), (6, (1,)), (0, (9,)), (8, (3,)), (2, (1,)))\nlaunch()")
    first, second = done.of("launch")
    assert first["attributes"] == {
        "cluster": [2, 1, 1],
        "programmatic_stream_serialization": 1,
        "cooperative": 1,
        "other": {"8": struct.pack("<16I", 3, *[0] * 15).hex()},
    }
    assert (first["grid"], first["block"], first["shared"], first["stream"]) == ([5, 6, 7], [32, 2, 1], 99, 132)
    assert "attributes" not in second


def test_a_cooperative_launch(record: Recorder) -> None:
    done = record(
        MODULE
        + 'program.launch_raw(program.function(module, b"k"), program.pack(()), None, name="cuLaunchCooperativeKernel")'
    )
    assert done.only("launch")["attributes"] == {"cooperative": 1}


def test_the_default_stream_of_a_thread_is_another_one(record: Recorder) -> None:
    done = record(
        MODULE
        + """function = program.function(module, b"k")
for name in ("cuLaunchKernel", "cuLaunchKernel_ptsz"):
    program.launch_raw(function, program.pack(()), None, name=name)
program.launch(function, stream=0xbad)"""
    )
    assert [launch.get("stream") for launch in done.of("launch")] == [7, 8, None]


def test_a_launch_that_failed_is_none(record: Recorder) -> None:
    done = record(MODULE + 'program.launch(program.function(module, b"k"))', FAKE_LAUNCH_FAILS="1")
    assert not done.of("launch")
    assert done.only("end")["launches"] == 0


def test_the_calls_of_the_recorder_itself_are_not_recorded(record: Recorder) -> None:
    done = record(
        MODULE + 'program.launch(program.function(module, b"k", (8,)), (word(DEVICE),))', FAKE_QUERIES_CALL="1"
    )
    assert len(done.of("launch")) == 1
    assert not done.of("fill")


def test_errno_is_left_as_it_was(record: Recorder) -> None:
    done = record(
        """
        c.set_errno(77)
        function = program.function(program.module(b"\\0k\\0"), b"k", (8,))
        program.launch_raw(function, (c.c_void_p * 1)(0x1000), None)
        print(c.get_errno())
        """
    )
    assert done.stdout == "77\n"
    assert done.of("lost")


def test_names_of_any_bytes_are_recorded(record: Recorder) -> None:
    name = 'q"\\\x01\x7fé\U0001f600'
    done = record(
        MODULE + 'program.launch(program.function(module, sys.argv[1].encode() + b"\\xff\\xed\\xa0\\x80"))',
        name,
        "last",
    )
    assert done.only("kernel")["symbol"] == name + "\udcff\udced\udca0\udc80"
    assert done.records[0]["command"][-2:] == [name, "last"]
    assert done.records[0]["command"][0] == sys.executable


def test_a_kernel_without_parameters_needs_none_of_the_ways_to_pass_them(record: Recorder) -> None:
    done = record(
        MODULE
        + """function = program.function(module, b"k")
program.launch_raw(function, None, None)
program.launch_raw(function, None, program.extra(0, 0))"""
    )
    assert [(launch["via"], launch["params"]) for launch in done.of("launch")] == [("params", []), ("extra", [])]
    assert not done.of("lost")


def test_more_parameters_than_a_kernel_can_have_are_no_layout(record: Recorder) -> None:
    done = record(
        MODULE + 'program.launch(program.function(module, b"k", (8,)), (word(DEVICE),))', FAKE_ENDLESS_PARAMS="1"
    )
    assert done.only("kernel")["layout"] is None
    assert done.only("launch")["params"] is None


def test_launches_by_the_oldest_calls_are_said_to_be_lost(record: Recorder) -> None:
    done = record(MODULE + 'program.call("cuLaunchGrid", program.function(module, b"k"), 1, 1)')
    assert done.only("lost")["what"] == "a launch"
