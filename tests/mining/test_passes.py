"""Passes of simulated programs: found, with their token counts, whatever the program and its memory do."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kern.mining import MinedProcess, mine
from support.recordings import Recorder, packed
from support.recordings_program import Arg, Behaviour, Op, Program, Truth, simulate
from support.recordings_programs import NORM, TOKENS, behaviours, programs, sizes

FEW = settings(max_examples=25, deadline=None, derandomize=True)
"""Derandomized: among thousands of programs as small as these there is one whose memory repeats by chance."""


def mined(dump: Path) -> MinedProcess:
    return mine(dump).main


@FEW
@given(programs(), sizes, behaviours)
def test_token_counts_are_recovered(program: Program, counts: list[int], behaviour: Behaviour) -> None:
    with tempfile.TemporaryDirectory() as folder:
        simulate(Path(folder), program, counts, behaviour)
        assert [each.tokens for each in mined(Path(folder)).passes] == counts


@FEW
@given(programs(), sizes, behaviours.filter(lambda behaviour: not behaviour.graph))
def test_launches_are_in_their_pass(program: Program, counts: list[int], behaviour: Behaviour) -> None:
    """All from the first to the last launch that varies with a pass's size; others may not show their pass."""
    with tempfile.TemporaryDirectory() as folder:
        truth = simulate(Path(folder), program, counts, behaviour)
        wrong = set(misplaced(truth, mined(Path(folder))))
    for number in range(len(counts)):
        lines = [line for line, known in truth.launches.items() if known.number == number]
        norms = [line for line in lines if truth.launches[line].op is NORM]
        inside = {line for line in lines if norms[0] <= line <= norms[-1]}
        assert not inside & wrong


def misplaced(truth: Truth, process: MinedProcess) -> list[int]:
    found = {launch.line: each.index for each in process.passes for launch in each.launches}
    return [line for line, known in truth.launches.items() if found.get(line) != known.number]


def program(*layer: Op) -> Program:
    gather = Op("gather", (Arg("write"), Arg("input"), Arg("weight"), Arg("i32", TOKENS)), (TOKENS, 1, 1))
    best = Op("best", (Arg("write"), Arg("read"), Arg("i32", TOKENS)), (1, 1, 1))
    return Program((gather,), (NORM, *layer), 4, (NORM, best))


COUNTS = [2048, 1, 1, 16, 1, 1, 34, 1, 85, 1, 1, 175, 1]


def test_ends_follow_from_the_counts_that_launches_vary_with(tmp_path: Path) -> None:
    """No copies and no waits: only what the first and the last launch are given says where they belong."""
    truth = simulate(tmp_path, program(), COUNTS, Behaviour(noise=False, copies=False))
    assert misplaced(truth, mined(tmp_path)) == []


def test_layers_that_share_their_weights_are_not_passes(tmp_path: Path) -> None:
    shared = Op("again", (Arg("shared"), Arg("input"), Arg("read"), Arg("write")), (TOKENS, 1, 1))
    simulate(tmp_path, program(shared, shared), COUNTS, Behaviour())
    assert [each.tokens for each in mined(tmp_path).passes] == COUNTS


def test_passes_are_found_by_kernels_where_no_parameter_is_known(tmp_path: Path) -> None:
    def opaque(op: Op) -> Op:
        return Op(op.symbol, op.args, op.grid, opaque=True)

    simulated = program()
    first, *_ = simulated.prologue
    blind = Program(
        (opaque(first),), tuple(map(opaque, simulated.layer)), 4, tuple(opaque(op) for op in simulated.epilogue)
    )
    simulate(tmp_path, blind, COUNTS, Behaviour(initialise=False))
    assert [each.tokens for each in mined(tmp_path).passes] == COUNTS


@pytest.mark.parametrize("scratch", [(1, 2), (1, 2, 3, 4)])
def test_memory_that_one_pass_alone_uses_over_and_over_ends_none(tmp_path: Path, scratch: tuple[int, ...]) -> None:
    """Buffers that other passes use once, as they do their weights; in one, they come back in its later layers."""
    recorder = Recorder(tmp_path)
    module = recorder.module(b"image")
    norm, move = (recorder.kernel(symbol, module, (8, 4)) for symbol in ("norm", "move"))
    counts = [2048, 16, 1, 1, 34, 1, 1, 85, 1, 1, 175, 1, 1, 1, 5, 1, 1, 2, 1, 1, 1, 16]
    for number, tokens in enumerate(counts):
        for layer in range(12):
            over = layer == 0 or (number == 11 and layer > 6)
            places = [(norm, 100 + 8 * layer + weight) for weight in range(8)] + [(move, at) for at in scratch if over]
            for kernel, place in places:
                pointer = {"param": 0, "at": 0, "memory": "device", "range": [BASE, 2**20]}
                params = [packed(BASE + 512 * place, 8), packed(tokens, 4)]
                recorder.launch(kernel, params, [pointer], grid=[tokens, 1, 1])
    recorder.end()
    passes = mined(tmp_path).passes
    assert [each.tokens for each in passes] == counts
    assert {len(each.of("norm")) for each in passes} == {96}


def test_variants_are_distinguished(tmp_path: Path) -> None:
    one = Op("mix", (Arg("write"), Arg("read")), (1, 8, 16), when="one", image="one")
    many = Op("mix", (Arg("write"), Arg("read")), (TOKENS, 8, 1), when="many", image="many")
    simulate(tmp_path, program(one, many), COUNTS, Behaviour())
    process = mined(tmp_path)
    assert len({each.variant for each in process.passes if each.tokens == 1}) == 1
    assert len({each.variant for each in process.passes}) == 2
    instances = {(launch.kernel.module, each.tokens == 1) for each in process.passes for launch in each.of("mix")}
    assert len(instances) == len({module for module, _ in instances}) == 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 4), st.integers(0, 6), st.integers(0, 40), st.integers(1, 3), st.sampled_from((0, 999))
        ),
        max_size=60,
    )
)
def test_any_run_is_analysed(launches: list[tuple[int, int, int, int, int]]) -> None:
    """Whatever ran: passes follow each other and do not overlap, and each site has a launch in each of its passes."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder))
        module = recorder.module(b"image")
        for kernel, place, grid, thread, wait in launches:
            recorder.time += wait
            pointers = [{"param": 0, "at": 0, "memory": "device", "range": [BASE, 4096]}] if place else []
            number = recorder.kernel(f"k{kernel}", module, (8, 4))
            params = [packed(BASE + 512 * place, 8), packed(grid, 4)]
            recorder.launch(number, params, pointers, grid=[grid, 1, 1], thread=thread)
        recorder.end()
        process = mined(Path(folder))
    orders = [event.order for each in process.passes for event in each.events]
    assert orders == sorted(set(orders))
    for site in process.sites:
        assert len(site.passes) == len(site.launches) > 0


BASE = 0x7F0000000000


def test_of_a_single_pass_only_the_layers_recur(tmp_path: Path) -> None:
    simulate(tmp_path, program(), [16], Behaviour(initialise=False))
    process = mined(tmp_path)
    assert len(process.passes) == 4
    assert process.reference is None
