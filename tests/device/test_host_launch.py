"""Launches on the host: what a kernel receives, in which order they run, graphs and interrupts."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kern.device.base import LaunchError
from kern.device.host.device import HostDevice
from kern.manifest.launches import KernelLaunch
from kern.manifest.params import SCALAR_RANGE

# Writes its later parameters, whose sizes it is given, one after another.
GATHER = """
KERN_KERNEL(gather, "ptr,ptr,i32") {
    unsigned char *out = KERN_ARG(unsigned char *, 0);
    const int *sizes = KERN_ARG(const int *, 1);
    for (int i = 0; i < KERN_ARG(int, 2); i++) {
        if ((uintptr_t)params[3 + i] % sizes[i]) __builtin_trap();
        memcpy(out, params[3 + i], sizes[i]);
        out += sizes[i];
    }
}
"""
GEOMETRY = 'KERN_KERNEL(geometry, "ptr") { memcpy(KERN_ARG(char *, 0), launch, sizeof *launch); }'
STEP = 'KERN_KERNEL(step, "ptr,i64") { int64_t *x = KERN_ARG(int64_t *, 0); *x = *x * 3 + KERN_ARG(int64_t, 1); }'
SLEEP = '#include <unistd.h>\nKERN_KERNEL(sleep_ms, "i32") { (void)launch; usleep(1000 * KERN_ARG(int, 0)); }'
INTERRUPT = '#include <signal.h>\nKERN_KERNEL(interrupt, "") { (void)launch, (void)params; raise(SIGINT); }'

SIZES = {"ptr": 8, "i32": 4, "u32": 4, "i64": 8, "f32": 4, "u8": 1}
VALUES = {
    "ptr": st.integers(0, 2**64 - 1),
    "f32": st.floats(width=32, allow_nan=False),
    **{name: st.integers(*bounds) for name, bounds in SCALAR_RANGE.items()},
}
PARAMETER = st.sampled_from(sorted(VALUES)).flatmap(lambda name: VALUES[name].map(lambda value: (name, value)))

Compile = Callable[..., bytes]
MakeLaunch = Callable[..., KernelLaunch]


@settings(max_examples=60, deadline=None)
@given(st.lists(PARAMETER, max_size=40))
def test_a_kernel_receives_every_parameter_as_it_was_packed(
    compile_c: Compile, make_launch: MakeLaunch, parameters: list[tuple[str, int | float]]
) -> None:
    device = HostDevice(threads=1)
    stream = device.stream()
    module = device.load_module(compile_c(GATHER))
    types, values = [name for name, _ in parameters], [value for _, value in parameters]
    sizes = [SIZES[name] for name in types]
    out, table = device.alloc(512), device.alloc(512)
    device.write(table.address, np.array([*sizes, 0], np.int32).data, stream)
    launch = make_launch(
        module.function("gather"), " ".join(["ptr ptr i32", *types]), out.address, table.address, len(sizes), *values
    )
    device.launch(device.prepare([launch]), stream)
    formats = {"ptr": "Q", "i32": "i", "u32": "I", "i64": "q", "f32": "f", "u8": "B"}
    expected = b"".join(struct.pack("=" + formats[name], value) for name, value in parameters)
    assert device.read(out.address, sum(sizes), stream).wait() == expected
    module.unload()
    for memory in (out, table):
        memory.free()


def test_a_kernel_receives_the_geometry_and_the_threads(
    device: HostDevice, compile_c: Compile, make_launch: MakeLaunch
) -> None:
    function, out, stream = (
        device.load_module(compile_c(GEOMETRY)).function("geometry"),
        device.alloc(32),
        device.stream(),
    )
    launch = make_launch(function, "ptr", out.address, grid=(7, 2**31 - 1, 3), block=(32, 4, 2), shared_mem=4096)
    device.launch(device.prepare([launch]), stream)
    received = struct.unpack("=8I", device.read(out.address, 32, stream).wait())
    assert received == (7, 2**31 - 1, 3, 32, 4, 2, 4096, 2)


def test_devices_with_different_thread_counts_coexist(compile_c: Compile, make_launch: MakeLaunch) -> None:
    seen = []
    devices = [HostDevice(threads=count) for count in (1, 3)]
    prepared = []
    for device in devices:
        out = device.alloc(32)
        function = device.load_module(compile_c(GEOMETRY)).function("geometry")
        prepared.append((device, out, device.prepare([make_launch(function, "ptr", out.address)])))
    for device, _, launches in prepared:
        device.launch(launches, device.stream())
    for device, out, _ in prepared:
        seen.append(struct.unpack("=8I", device.read(out.address, 32, device.stream()).wait())[-1])
    assert seen == [1, 3]


def step_list(
    device: HostDevice, image: bytes, make_launch: MakeLaunch, address: int, numbers: list[int]
) -> list[KernelLaunch]:
    function = device.load_module(image).function("step")
    return [make_launch(function, "ptr i64", address, number, label=f"step {number}") for number in numbers]


def test_profiling_runs_the_list_and_times_each_launch(
    device: HostDevice, compile_c: Compile, make_launch: MakeLaunch
) -> None:
    memory, stream = device.alloc(8), device.stream()
    slow = make_launch(device.load_module(compile_c(SLEEP)).function("sleep_ms"), "i32", 20)
    launches = [*step_list(device, compile_c(STEP), make_launch, memory.address, [7]), slow]
    seconds = device.profile(device.prepare(launches), stream)
    assert len(seconds) == 2
    assert seconds[0] > 0
    assert seconds[1] >= 0.02  # the kernel sleeps for 20 ms
    assert struct.unpack("=q", device.read(memory.address, 8, stream).wait()) == (7,)


@pytest.mark.parametrize(("attribute", "value"), [("cluster", (2, 1, 1)), ("cooperative", True)])
def test_what_only_a_gpu_launches_is_refused_by_name(
    device: HostDevice, compile_c: Compile, make_launch: MakeLaunch, attribute: str, value: object
) -> None:
    function = device.load_module(compile_c(STEP)).function("step")
    with pytest.raises(
        LaunchError, match=f"layer 3: 'step' has the launch attribute `{attribute}`, which is not supported on the host"
    ):
        device.prepare([make_launch(function, "ptr i64", 0, 0, label="layer 3", **{attribute: value})])


def test_an_interrupt_stops_between_two_launches(
    device: HostDevice, compile_c: Compile, make_launch: MakeLaunch
) -> None:
    memory, stream = device.alloc(8), device.stream()
    interrupt = make_launch(device.load_module(compile_c(INTERRUPT)).function("interrupt"))
    steps = step_list(device, compile_c(STEP), make_launch, memory.address, [1, 1])
    prepared = device.prepare([steps[0], interrupt, *steps[1:] * 50])
    with pytest.raises(KeyboardInterrupt):
        device.launch(prepared, stream)
    (value,) = struct.unpack("=q", device.read(memory.address, 8, stream).wait())
    assert value in (1, 4)
