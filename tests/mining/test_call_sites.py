"""Call sites of simulated programs: their numbers as expressions, their pointers by what they are."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings

from kern.manifest.expressions import evaluate
from kern.mining import MinedProcess, mine
from kern.mining.mine import CallSite
from support.recordings_program import POINTERS, Arg, Behaviour, Op, Program, Truth, simulate
from support.recordings_programs import NORM, TOKENS, behaviours, programs

COUNTS = [2048, 64, 1, 1, 16, 1, 1, 34, 1, 1, 85, 1, 175, 1, 1]


def known(truth: Truth, site: CallSite) -> Op:
    """What a site's launches are; of which there is one, or the alignment is wrong."""
    (op,) = {truth.launches[launch.line].op for launch in site.launches}
    return op


@settings(max_examples=20, deadline=None, derandomize=True)
@given(programs(), behaviours.filter(lambda behaviour: not behaviour.graph))
def test_numbers_are_the_expressions_that_the_program_computes(program: Program, behaviour: Behaviour) -> None:
    with tempfile.TemporaryDirectory() as folder:
        truth = simulate(Path(folder), program, COUNTS, behaviour)
        process = mine(Path(folder)).main
    for site in process.sites:
        if all(launch.line in truth.launches for launch in site.launches) and in_layers(truth, site):
            op = known(truth, site)
            numbers = {number.name: number.fit for number in site.numbers}
            for axis, truly in zip("xyz", op.grid, strict=True):
                found = numbers[f"grid.{axis}"]
                assert found.status in ("fit", "underdetermined")
                assert found.expression is not None
                for tokens, value in found.samples:
                    assert evaluate(found.expression, {"tokens": tokens}) == value
                    assert evaluate(truly, {"tokens": tokens}) == value


def in_layers(truth: Truth, site: CallSite) -> bool:
    return all(truth.launches[launch.line].place[0] == "layer" for launch in site.launches)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Truth, MinedProcess]:
    store = Op("store", (Arg("read"), Arg("state"), Arg("input"), Arg("shared"), Arg("i64", 1024)), (TOKENS, 8, 1))
    where = Op("where", (Arg("read"), Arg("position"), Arg("f32", 0.5), Arg("u8", 1)), (TOKENS.over(4), 1, 1))
    gather = Op("gather", (Arg("write"), Arg("input"), Arg("weight")), (TOKENS, 1, 1))
    program = Program((gather,), (NORM, store, where), 6, (NORM,))
    dump = tmp_path_factory.mktemp("sites")
    truth = simulate(dump, program, COUNTS, Behaviour(seed=3, disturb=0.5))
    return truth, mine(dump).main


def test_pointers_are_classed_by_how_stable_they_are(simulated: tuple[Truth, MinedProcess]) -> None:
    truth, process = simulated
    found: defaultdict[str, set[str]] = defaultdict(set)
    for site in process.sites:
        if site.kernel.symbol in ("norm", "store", "gather"):
            op = known(truth, site)
            roles = [arg.role for arg in op.args if arg.role in POINTERS]
            for role, use in zip(roles, site.pointers, strict=True):
                found[role].add(use.stability)
                assert use.copied == (role == "input")
                assert use.memory == "device"
    assert found["weight"] == found["state"] == {"own"}
    assert found["shared"] == {"shared"}
    assert found["residual"] == found["read"] == {"varying"}


def test_a_buffer_is_an_address_and_not_an_allocation(simulated: tuple[Truth, MinedProcess]) -> None:
    _, process = simulated
    weights = [site.pointers[2] for site in process.sites if site.kernel.symbol == "norm"]
    assert len({use.address for use in weights}) == len(weights) == 7
    assert len({span for use in weights for span in use.ranges}) == 1


def test_scalars_have_the_type_that_their_bits_suggest(simulated: tuple[Truth, MinedProcess]) -> None:
    _, process = simulated
    site = next(site for site in process.sites if site.kernel.symbol == "where")
    numbers = {number.name: number for number in site.numbers}
    assert (numbers["param 2"].type, numbers["param 2"].value) == ("f32", 0.5)
    assert (numbers["param 3"].type, numbers["param 3"].value) == ("u8", None)
    store = next(site for site in process.sites if site.kernel.symbol == "store")
    assert [n.type for n in store.numbers if n.name == "param 4"] == ["i64"]


def test_a_number_that_follows_something_else_is_unfit(simulated: tuple[Truth, MinedProcess]) -> None:
    _, process = simulated
    site = next(site for site in process.sites if site.kernel.symbol == "where")
    (position,) = [number.fit for number in site.numbers if number.name == "param 1"]
    assert position.status == "unfit"
    assert "varies between passes of equal token count" in position.why


def test_only_passes_that_launch_a_kernel_equally_often_are_compared(tmp_path: Path) -> None:
    once = Op("odd", (Arg("weight"), Arg("i32", TOKENS)), (TOKENS, 1, 1))
    twice = Op("odd", (Arg("weight"), Arg("i32", TOKENS)), (TOKENS, 1, 1), when="many")
    program = Program((), (NORM,), 6, (NORM, once, twice))
    simulate(tmp_path, program, [1, 1, 1, 16, 1, 1, 34, 1], Behaviour(noise=False))
    process = mine(tmp_path).main
    counts = {(site.count, site.passes) for site in process.sites if site.kernel.symbol == "odd"}
    assert counts == {(1, (0, 1, 2, 4, 5, 7)), (2, (3, 6))}
    assert process.unaligned == ()


def test_masked_strides_are_distinguished(tmp_path: Path) -> None:
    """A stride that only passes of several tokens use: it is another one in those of one token."""
    rows = tuple(
        Op("rows", (Arg("weight"), Arg("read"), Arg("i64", stride)), (TOKENS, 1, 1), when=when)
        for when, stride in (("one", 1024), ("many", 6144))
    )
    simulate(tmp_path, Program((), (NORM, *rows), 4, (NORM,)), COUNTS, Behaviour())
    process = mine(tmp_path).main
    (fit,) = {n.fit for s in process.sites if s.kernel.symbol == "rows" for n in s.numbers if n.name == "param 2"}
    assert (fit.status, fit.expression, fit.why) == ("masked", 6144, "but 1024 at tokens = 1")
