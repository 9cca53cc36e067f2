"""The memory plan: lifetimes never overlap in memory, little is wasted, sizes follow the bounds."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kern.manifest.builder import ManifestBuilder
from kern.manifest.expressions import CeilDiv
from kern.manifest.types import Manifest
from kern.runtime.memory.arena import pack, peak
from kern.runtime.memory.lifetimes import Block, blocks
from kern.runtime.memory.planner import plan
from kern.runtime.memory.sizes import BadCapacity
from kern.verifier import verified
from support.programs import RandomProgram, random_programs
from support.toy import single, toy_manifest

spans = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted)


@st.composite
def random_blocks(draw: st.DrawFn) -> list[Block]:
    sizes = draw(st.lists(st.integers(1, 5000), max_size=25))
    return [Block(f"b{index}", size, *draw(spans)) for index, size in enumerate(sizes)]


def assert_apart(of: list[Block], offsets: dict[str | tuple[int, str], int], arena: int) -> None:
    for block in of:
        assert offsets[block.key] % 256 == 0
        assert 0 <= offsets[block.key] <= arena - block.size
    for one, other in combinations(of, 2):
        alive_together = not (one.last < other.first or other.last < one.first)
        first, second = sorted((offsets[b.key], offsets[b.key] + b.size) for b in (one, other))
        assert not alive_together or first[1] <= second[0], (one, other)


@given(random_blocks())
@settings(max_examples=150)
def test_blocks_alive_at_once_do_not_overlap(of: list[Block]) -> None:
    packed = pack(of)
    assert_apart(of, packed.of, packed.size)
    assert peak(of) <= packed.size <= sum(-(-block.size // 256) * 256 for block in of)


@given(random_blocks())
@settings(max_examples=50)
def test_the_peak_is_the_most_alive_at_any_step(of: list[Block]) -> None:
    alive = [sum(b.size for b in of if b.first <= step <= b.last) for step in range(21)]
    assert peak(of) == max(alive, default=0)


@given(random_programs(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_program_s_lifetimes_never_overlap_in_memory(random: RandomProgram, sharing: bool) -> None:
    planned = plan(verified(random.manifest), sharing=sharing)
    for program in random.manifest.programs:
        of = blocks(random.manifest, program, planned.sizes)
        separate = {b.key: b for b in of if sharing or isinstance(b.key, str)}
        assert_apart(list(separate.values()), planned.workspace.offsets[program], planned.workspace.size)
    assert planned.workspace.lower_bound <= planned.workspace.size <= planned.workspace.unshared


def steps_of(key: str | tuple[int, str], manifest: Manifest, program: str) -> tuple[int, int]:
    planned = plan(verified(manifest))
    return next((b.first, b.last) for b in blocks(manifest, program, planned.sizes) if b.key == key)


def test_lifetimes_span_the_steps_that_access_a_buffer() -> None:
    manifest = toy_manifest()
    assert steps_of("biased", manifest, "fill") == (0, 1)
    assert steps_of("gained", manifest, "fill") == (1, 5)  # the first of the two steps of the last dispatch
    assert steps_of((5, "part"), manifest, "fill") == (5, 6)


def test_kept_scratch_and_the_host_s_buffers_have_their_own_locations() -> None:
    planned = plan(verified(toy_manifest()))
    assert set(planned.io.offsets) == {"x", "total", "sum", "count", "kept", "seen", ("summarize", "calls")}
    ends = sorted(planned.io.offsets.values())
    assert all(offset % 256 == 0 for offset in ends)
    assert len(set(ends)) == len(ends)


def test_sharing_off_gives_every_buffer_and_scratch_its_own_bytes() -> None:
    planned = plan(verified(toy_manifest()), sharing=False)
    assert planned.workspace.size == planned.workspace.unshared == 2 * 512 + 256
    assert set(planned.workspace.resident) == {"biased", "gained"}
    offsets = planned.workspace.offsets["fill"]
    assert len({offsets["biased"], offsets["gained"], offsets[5, "part"]}) == 3
    assert offsets == planned.workspace.offsets["step"]


def test_a_buffer_that_one_narrow_program_touches_costs_that_program_s_bound() -> None:
    b = ManifestBuilder("narrow")
    rows = b.symbol("rows", max=512)
    x, out = b.input("x", "f32", (rows, 8)), b.output("out", "f32", (rows, 8))
    wide = b.output("wide", "f32", (rows, 8))
    add = single(
        "add_scaled_f32",
        ("out buffer<f32>", "in buffer<f32>", "in buffer<f32>", "f32", "i32"),
        (rows, 1, 1),
    )
    b.kernel("add", add)
    b.program("all").dispatch("add", wide, x, x, 1.0, 8)
    b.program("one", rows=(1, 1)).dispatch("add", out, x, x, 1.0, 8)
    planned = plan(verified(b.build()))
    assert planned.sizes.buffers == {"x": 512 * 32, "wide": 512 * 32, "out": 32}


@pytest.mark.parametrize(("capacity", "sequences", "expected"), [(1, 1, 16), (16, 1, 16), (17, 1, 32), (37, 3, 144)])
def test_a_state_takes_whole_granules_for_each_sequence(capacity: int, sequences: int, expected: int) -> None:
    planned = plan(verified(toy_manifest()), capacity=capacity, sequences=sequences)
    assert planned.sizes.states == {"pool": expected * 32}


def two_states() -> Manifest:
    b = ManifestBuilder("states")
    small = b.sequence_state("small", bytes=100)
    large = b.state("large", bytes_per_token=3, align=4096)
    b.kernel("remember", single("remember_f32", ("in buffer<f32>", "inout ptr", "i64", "i32")))
    x = b.input("x", "f32", (1,))
    program = b.program("main")
    program.dispatch("remember", x, small, 0, 1)
    program.dispatch("remember", x, large, 0, 1)
    return b.build()


def test_states_by_sequence_and_large_alignments() -> None:
    planned = plan(verified(two_states()), capacity=10, sequences=2)
    assert planned.sizes.states == {"small": 200, "large": 60}
    assert planned.states.offsets == {"small": 0, "large": 4096}
    assert planned.states.alignment == 4096
    assert planned.states.allocation == planned.states.size + 4096 - 256


@pytest.mark.parametrize("given", [{"capacity": 0}, {"sequences": 0}, {"capacity": -3}])
def test_a_capacity_below_one_is_refused(given: dict[str, int]) -> None:
    with pytest.raises(BadCapacity, match=next(iter(given))):
        plan(verified(toy_manifest()), **given)


def layers(count: int, hidden: int, wide: int, qkv_columns: int) -> Manifest:
    """Launches and buffers of a deep stack: each layer has its own buffers, and all share one running sum."""
    b = ManifestBuilder("stack")
    rows = b.symbol("rows", max=512)
    pool = b.state("pool", bytes_per_token=2 * hidden * count)
    ids = b.input("ids", "i64", (rows,))
    table = b.weight("table", "bf16", (100, hidden))
    out = b.output("out", "bf16", (rows, hidden))
    by_row = (rows, 1, 1)
    bf16, f32 = "buffer<bf16>", "buffer<f32>"
    b.kernel("gather", single("gather", (f"out {f32}", "in buffer<i64>", f"in {bf16}"), by_row))
    b.kernel("norm", single("norm", (f"out {bf16}", f"in {f32}"), by_row))
    b.kernel("add_norm", single("add_norm", (f"out {bf16}", f"inout {f32}", f"in {bf16}"), by_row))
    b.kernel("product", single("product", (f"out {bf16}", f"in {bf16}"), (CeilDiv(ceil_div=(rows, 16)), 1, 1)))
    b.kernel("write", single("write", (f"in {bf16}", "inout ptr"), by_row))
    b.kernel("mix", single("mix", (f"out {bf16}", f"in {bf16}", "in ptr"), by_row))
    residual = b.workspace("residual", "f32", (rows, hidden))
    p = b.program("prefill")
    p.dispatch("gather", residual, ids, table)
    delta = None
    for layer in range(count):

        def array(name: str, columns: int, layer: int = layer) -> object:
            return b.workspace(f"{layer}.{name}", "bf16", (rows, columns))

        normed, qkv, mixed, o = (
            array("normed", hidden),
            array("qkv", qkv_columns),
            array("mixed", hidden),
            array("o", hidden),
        )
        after, gate_up, silu, down = (
            array("after", hidden),
            array("gate_up", 2 * wide),
            array("silu", wide),
            array("down", hidden),
        )
        if delta is None:
            p.dispatch("norm", normed, residual)
        else:
            p.dispatch("add_norm", normed, residual, delta)
        p.dispatch("product", qkv, normed)
        p.dispatch("write", qkv, pool)
        p.dispatch("mix", mixed, qkv, pool)
        p.dispatch("product", o, mixed)
        p.dispatch("add_norm", after, residual, o)
        p.dispatch("product", gate_up, after)
        p.dispatch("product", silu, gate_up)
        p.dispatch("product", down, silu)
        delta = down
    p.dispatch("add_norm", out, residual, delta)
    return b.build()


def test_a_deep_prefill_takes_little_more_than_its_lower_bound() -> None:
    workspace = plan(verified(layers(30, hidden=576, wide=1536, qkv_columns=960))).workspace
    at_the_widest = 512 * (576 * 4 + 2 * 1536 * 2 + 1536 * 2)
    assert workspace.lower_bound == at_the_widest
    assert workspace.size <= 1.1 * workspace.lower_bound
    assert workspace.unshared > 30 * workspace.lower_bound / 2
