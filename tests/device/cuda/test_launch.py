"""Launches on a GPU: what a kernel receives, order, graphs, launch attributes, shared memory, refusals."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kern.device.base import Device, Function, LaunchError, Stream
from kern.manifest.launches import KernelLaunch
from kern.manifest.params import SCALAR_RANGE, Param, layout

if TYPE_CHECKING:
    from kern.device.cuda.device import CudaDevice

pytestmark = pytest.mark.gpu

C_TYPES = {
    "ptr": "const void *", "i32": "int", "u32": "unsigned", "i64": "long long", "f32": "float", "u8": "unsigned char",
}  # fmt: skip
FORMATS = {"ptr": "Q", "i32": "i", "u32": "I", "i64": "q", "f32": "f", "u8": "B"}

GEOMETRY = """
extern "C" __global__ void geometry(unsigned *out) {
    extern __shared__ char shared[];
    unsigned size;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(size));
    if (blockIdx.x + 1 == gridDim.x && blockIdx.y + 1 == gridDim.y && blockIdx.z + 1 == gridDim.z
        && threadIdx.x + 1 == blockDim.x && threadIdx.y + 1 == blockDim.y && threadIdx.z + 1 == blockDim.z) {
        unsigned found[] = {gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y, blockDim.z, size};
        for (int i = 0; i < 7; i++) out[i] = found[i];
    }
}
"""
STEP = 'extern "C" __global__ void step(long long *x, long long add) { *x = *x * 3 + add; }'
# `early` lets its dependent start, then spins; `late` notes when it starts, then waits as it must.
DEPENDENT = """
__device__ unsigned long long now() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
extern "C" __global__ void early(unsigned long long *out, int spin_us) {
    asm volatile("griddepcontrol.launch_dependents;");
    unsigned long long start = now();
    while (now() - start < spin_us * 1000ull) {}
    out[0] += 1;
    out[1] = now();
}
extern "C" __global__ void late(unsigned long long *out) {
    unsigned long long start = now();
    asm volatile("griddepcontrol.wait;" ::: "memory");
    out[2] = start;
    out[3] = *(volatile unsigned long long *)out;
}
"""
CLUSTER = """
extern "C" __global__ void cluster(unsigned *out) {
    unsigned size, rank;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    out[2 * blockIdx.x] = size;
    out[2 * blockIdx.x + 1] = rank;
}
"""
# Every block waits for all the others: ends only if all are resident.
BARRIER = """
extern "C" __global__ void barrier(unsigned *arrived, unsigned *out) {
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (*(volatile unsigned *)arrived < gridDim.x) {}
        atomicAdd(out, 1);
    }
}
"""
SHARED = """
extern "C" __global__ void shared_sum(unsigned long long *out, int words) {
    extern __shared__ unsigned values[];
    for (int i = threadIdx.x; i < words; i += blockDim.x) values[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned long long sum = 0;
        for (int i = 0; i < words; i++) sum += values[i];
        *out = sum;
    }
}
extern "C" __global__ void static_shared(int *out) {
    __shared__ int values[1024];
    values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = values[1023 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(96) bounded(int *out) { out[threadIdx.x] = 1; }
"""
SPIN = """
extern "C" __global__ void spin(int us) {
    unsigned long long start, t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); while (t - start < us * 1000ull);
}
"""

Compile = Callable[[str], bytes]
MakeLaunch = Callable[..., KernelLaunch]
WAYS = ("eager", "graph")


def execute(device: Device, launches: list[KernelLaunch], stream: Stream, way: str) -> None:
    """Run a list eagerly or as a graph."""
    prepared = device.prepare(launches)
    if way == "graph":
        graph = device.capture([prepared])
        graph.launch(stream)
        stream.synchronize()
        graph.free()
    else:
        device.launch(prepared, stream)


def random_value(random: random.Random, name: str) -> int | float:
    if name == "f32":
        return float(np.float32(random.uniform(-1e30, 1e30)))
    low, high = SCALAR_RANGE.get(name, (0, 2**64 - 1))
    return random.choice([low, high, random.randint(low, high)])


@pytest.mark.parametrize("seed", range(8))
def test_a_kernel_receives_every_parameter_as_it_was_packed(
    device: Device, stream: Stream, compile_cuda: Compile, make_launch: MakeLaunch, seed: int
) -> None:
    draw = random.Random(seed)
    types = [draw.choice(sorted(C_TYPES)) for _ in range(draw.choice([0, 1, 5, 17, 60]))]
    if seed == 0:
        types = ["u8", "ptr", "u8", "i64", "i32", "u8", "f32", "u32", "u8"]
    declared = "".join(f", {C_TYPES[name]} p{index}" for index, name in enumerate(types))
    copies = "".join(f"memcpy(out, &p{index}, sizeof p{index}); out += sizeof p{index};" for index in range(len(types)))
    source = f'extern "C" __global__ void gather(unsigned char *out{declared}) {{ {copies} }}'
    function = device.load_module(compile_cuda(source)).function("gather")
    assert function.layout == layout([Param.parse("inout ptr" if n == "ptr" else n) for n in ("ptr", *types)])
    memory, values = device.alloc(1024), [random_value(draw, name) for name in types]
    launch = make_launch(function, " ".join(["ptr", *types]), memory.address, *values)
    expected = b"".join(struct.pack("=" + FORMATS[name], value) for name, value in zip(types, values, strict=True))
    for way in WAYS:
        device.zero(memory.address, 1024, stream)
        execute(device, [launch], stream, way)
        assert device.read(memory.address, len(expected), stream).wait() == expected
    memory.free()


@pytest.mark.parametrize("way", WAYS)
def test_a_kernel_receives_the_geometry(
    device: Device, stream: Stream, compile_cuda: Compile, make_launch: MakeLaunch, way: str
) -> None:
    function, out = device.load_module(compile_cuda(GEOMETRY)).function("geometry"), device.alloc(28)
    launch = make_launch(function, "ptr", out.address, grid=(70000, 3, 2), block=(32, 4, 2), shared_mem=4096)
    execute(device, [launch], stream, way)
    assert struct.unpack("=7I", device.read(out.address, 28, stream).wait()) == (70000, 3, 2, 32, 4, 2, 4096)
    out.free()


def steps(function: Function, make_launch: MakeLaunch, address: int, numbers: list[int]) -> list[KernelLaunch]:
    return [make_launch(function, "ptr i64", address, number, label=f"step {number}") for number in numbers]


def test_a_graph_freed_while_it_runs_ends_its_replay(
    device: Device, stream: Stream, compile_cuda: Compile, make_launch: MakeLaunch
) -> None:
    memory, spin = device.alloc(8), device.load_module(compile_cuda(SPIN)).function("spin")
    step = device.load_module(compile_cuda(STEP)).function("step")
    launches = [make_launch(spin, "i32", 20000), *steps(step, make_launch, memory.address, [7])]
    graph = device.capture([device.prepare(launches)])
    graph.launch(stream)
    graph.free()
    assert struct.unpack("=q", device.read(memory.address, 8, stream).wait()) == (7,)
    memory.free()


@pytest.mark.parametrize("way", ["eager", "graph"])
@pytest.mark.parametrize("pdl", [False, True])
def test_a_dependent_launch_starts_before_its_primary_ends_and_sees_its_writes(
    device: Device, stream: Stream, compile_cuda: Compile, make_launch: MakeLaunch, way: str, pdl: bool
) -> None:
    memory, module = device.alloc(32), device.load_module(compile_cuda(DEPENDENT))
    early = make_launch(module.function("early"), "ptr i32", memory.address, 3000)
    late = make_launch(module.function("late"), "ptr", memory.address, pdl=pdl)
    execute(device, [early, late], stream, way)
    count, ended, started, seen = struct.unpack("=4Q", device.read(memory.address, 32, stream).wait())
    assert (count, seen) == (1, 1)
    assert (started < ended) is pdl
    memory.free()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cluster", [None, (2, 1, 1), (8, 1, 1)])
def test_clusters_have_the_requested_size(
    device: Device,
    stream: Stream,
    compile_cuda: Compile,
    make_launch: MakeLaunch,
    way: str,
    cluster: tuple[int, int, int] | None,
) -> None:
    out, function = device.alloc(64 * 8), device.load_module(compile_cuda(CLUSTER)).function("cluster")
    execute(device, [make_launch(function, "ptr", out.address, grid=(64, 1, 1), cluster=cluster)], stream, way)
    size = cluster[0] if cluster else 1
    found = np.frombuffer(device.read(out.address, 64 * 8, stream).wait(), np.uint32).reshape(64, 2)
    assert (found[:, 0] == size).all()
    assert (found[:, 1] == np.arange(64) % size).all()
    out.free()


@pytest.mark.parametrize("way", WAYS)
def test_all_blocks_of_a_cooperative_launch_run_at_once(
    device: CudaDevice, stream: Stream, compile_cuda: Compile, make_launch: MakeLaunch, way: str
) -> None:
    memory, function = device.alloc(8), device.load_module(compile_cuda(BARRIER)).function("barrier")
    blocks = 132
    launch = make_launch(
        function, "ptr ptr", memory.address, memory.address + 4, grid=(blocks, 1, 1), block=(256, 1, 1),
        cooperative=True,
    )  # fmt: skip
    execute(device, [launch], stream, way)
    assert struct.unpack("=2I", device.read(memory.address, 8, stream).wait()) == (blocks, blocks)
    memory.free()


def test_a_cooperative_launch_that_does_not_fit_is_refused(
    device: Device, compile_cuda: Compile, make_launch: MakeLaunch
) -> None:
    function = device.load_module(compile_cuda(BARRIER)).function("barrier")
    for cluster in (None, (2, 1, 1)):
        launch = make_launch(
            function, "ptr ptr", 0, 0, grid=(65536, 1, 1), block=(256, 1, 1), cooperative=True, cluster=cluster,
            label="L0.mix",
        )  # fmt: skip
        with pytest.raises(LaunchError, match=r"L0.mix: a cooperative launch of 65536 blocks; cuda:0 holds \d+"):
            device.prepare([launch])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kilobytes", [16, 48, 64, 227])
def test_shared_memory_beyond_48_kb_is_opted_into(
    device: Device, stream: Stream, compile_cuda: Compile, make_launch: MakeLaunch, way: str, kilobytes: int
) -> None:
    memory, module = device.alloc(16), device.load_module(compile_cuda(SHARED))
    size, smaller = kilobytes * 1024, 8 * 1024
    launches = [
        make_launch(module.function("shared_sum"), "ptr i32", address, each // 4, shared_mem=each, block=(256, 1, 1))
        for address, each in ((memory.address, size), (memory.address + 8, smaller))
    ]
    execute(device, launches, stream, way)
    expected = tuple(each // 4 * (each // 4 - 1) // 2 for each in (size, smaller))
    assert struct.unpack("=2Q", device.read(memory.address, 16, stream).wait()) == expected
    memory.free()


def test_more_than_a_block_can_have_is_refused_by_name(
    device: Device, compile_cuda: Compile, make_launch: MakeLaunch
) -> None:
    module = device.load_module(compile_cuda(SHARED))
    shared, fixed, bounded = (module.function(name) for name in ("shared_sum", "static_shared", "bounded"))
    with pytest.raises(LaunchError, match=r"L1.norm: 'shared_sum' needs 0 \+ 300000 bytes of shared memory"):
        device.prepare([make_launch(shared, "ptr i32", 0, 0, shared_mem=300000, label="L1.norm")])
    with pytest.raises(LaunchError, match=r"'static_shared' needs 4096 \+ 232448 bytes"):
        device.prepare([make_launch(fixed, "ptr", 0, shared_mem=232448)])
    with pytest.raises(LaunchError, match="the block has 128 threads; 'bounded' allows at most 96"):
        device.prepare([make_launch(bounded, "ptr", 0, block=(128, 1, 1))])
    with pytest.raises(LaunchError, match=r"'bounded' takes parameters at 0:8 \(offset:size\), not at 0:8 8:4"):
        device.prepare([make_launch(bounded, "ptr i32", 0, 0)])


def test_limits_and_occupancy_are_those_of_the_function(device: Device, compile_cuda: Compile) -> None:
    module = device.load_module(compile_cuda(SHARED))
    fixed, bounded, shared = (module.function(name) for name in ("static_shared", "bounded", "shared_sum"))
    assert (fixed.limits.static_shared_mem, bounded.limits.static_shared_mem) == (4096, 0)
    assert (fixed.limits.max_threads, bounded.limits.max_threads) == (1024, 96)
    assert fixed.limits.registers
    full, lone = device.occupancy(fixed, (1024, 1, 1), 0), device.occupancy(shared, (1024, 1, 1), 200 * 1024)
    assert full is not None
    assert lone is not None
    assert (full.blocks, full.share, lone.blocks, lone.share) == (2, 1.0, 1, 0.5)


def test_a_launch_that_the_driver_refuses_is_named(
    device: Device, stream: Stream, compile_cuda: Compile, make_launch: MakeLaunch
) -> None:
    memory, function = device.alloc(8), device.load_module(compile_cuda(STEP)).function("step")
    good = steps(function, make_launch, memory.address, [1])
    bad = make_launch(function, "ptr i64", memory.address, 1, label="L2.mlp", grid=(1, 70000, 1))
    prepared = device.prepare([*good, bad])
    for refused in (
        lambda: device.launch(prepared, stream),
        lambda: device.capture([prepared]),
    ):
        with pytest.raises(
            LaunchError, match=r"^L2.mlp cannot be launched: cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE"
        ):
            refused()
    device.launch(device.prepare(good), stream)  # nothing is broken
    assert struct.unpack("=q", device.read(memory.address, 8, stream).wait()) == (4,)
    memory.free()


def test_profiling_runs_the_list_and_times_each_launch(
    device: Device, stream: Stream, compile_cuda: Compile, make_launch: MakeLaunch
) -> None:
    memory, spin = device.alloc(8), device.load_module(compile_cuda(SPIN)).function("spin")
    step = device.load_module(compile_cuda(STEP)).function("step")
    launches = [*steps(step, make_launch, memory.address, [1]), make_launch(spin, "i32", 2000)]
    seconds = device.profile(device.prepare(launches), stream)
    assert len(seconds) == 2
    assert seconds[1] >= 0.0019  # the kernel spins for 2 ms
    assert struct.unpack("=q", device.read(memory.address, 8, stream).wait()) == (1,)
    assert device.profile(device.prepare([]), stream) == ()
    memory.free()
