"""The accesses of each launch: written out by hand, and compared with a walk over the manifest's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kern.manifest.effects import Access, LaunchEffects, dispatch_accesses, effects
from kern.manifest.expressions import Expr, Mul, Sym, evaluate
from kern.manifest.operators import OPERATORS
from kern.manifest.reading import read
from kern.manifest.types import BufferArg, Manifest, ScratchArg, StateArg
from kern.manifest.writing import write
from kern.verifier.example import BASE
from support.any_manifest import documents as any_documents
from support.any_manifest import manifest_of
from support.edited_example import edited
from support.programs import RandomProgram, random_programs
from support.valid_manifests import documents as valid_documents

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
ROWS = Sym(sym="rows")


def manifest(text: str) -> Manifest:
    found = read(text.encode()).manifest
    assert found is not None
    return found


def summary(launch: LaunchEffects) -> list[tuple[str, str, int, str, int, int | None]]:
    """What a launch does, without extents: kind, name, offset, parameter, its index, the interface's index."""
    return [(a.kind, a.name, a.offset, str(a.param), a.position, a.interface) for a in launch.accesses]


def test_the_example_s_program_has_these_accesses() -> None:
    launches = list(effects(manifest(BASE), "step"))
    assert [(launch.dispatch, launch.step) for launch in launches] == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1)]
    assert [summary(launch) for launch in launches] == [
        [
            ("buffer", "mixed", 0, "out buffer<f32>", 0, 0),
            ("buffer", "signal", 0, "in buffer<bf16>", 1, 1),
            ("buffer", "filter", 0, "in buffer<bf16>", 2, 2),
        ],
        [
            ("buffer", "scaled", 0, "out buffer<f32> align 16", 0, 0),
            ("buffer", "mixed", 0, "in buffer<f32>", 1, 1),
        ],
        [
            ("buffer", "scaled", 0, "in buffer<f32>", 0, 0),
            ("state", "history", 512, "inout ptr", 1, 1),
        ],
        [
            ("scratch", "part", 0, "out buffer<f32>", 0, None),
            ("buffer", "scaled", 0, "in buffer<f32>", 1, 2),
        ],
        [
            ("buffer", "peak", 0, "out buffer<f32>", 0, 0),
            ("buffer", "total", 0, "inout buffer<f32>", 1, 1),
            ("scratch", "part", 0, "in buffer<f32>", 2, None),
            ("scratch", "count", 0, "inout buffer<i32>", 3, None),
        ],
    ]
    assert [[(a.reads, a.writes) for a in launch.accesses] for launch in launches] == [
        [(False, True), (True, False), (True, False)],
        [(False, True), (True, False)],
        [(True, False), (True, True)],
        [(False, True), (True, False)],
        [(False, True), (True, True), (True, False), (True, True)],
    ]


def test_a_dispatch_accesses_what_its_interface_takes() -> None:
    example = manifest(BASE)
    summarize = example.programs["step"].dispatches[3]
    found = [
        (a.name, a.reads, a.writes, a.position) for a in dispatch_accesses(example.kernels["summarize"], summarize)
    ]
    assert found == [("peak", False, True, 0), ("total", True, True, 1), ("scaled", True, False, 2)]


def test_offsets_and_arguments_given_twice_are_kept() -> None:
    final = "/kernels/summarize/impl/steps/1"
    text = edited(
        {
            f"{final}/params": '["out buffer<f32>", "in buffer<f32>", "inout buffer<f32>", "inout buffer<i32>"]',
            f"{final}/args": '[{"arg": 0}, {"arg": 1}, {"arg": 1}, {"scratch": "count", "offset": 16}]',
            "/programs/step/dispatches/3/args/1": '{"buf": "total", "offset": 256}',
        }
    )
    launch = list(effects(manifest(text), "step"))[-1]
    assert summary(launch) == [
        ("buffer", "peak", 0, "out buffer<f32>", 0, 0),
        ("buffer", "total", 256, "in buffer<f32>", 1, 1),
        ("buffer", "total", 256, "inout buffer<f32>", 2, 1),
        ("scratch", "count", 16, "inout buffer<i32>", 3, None),
    ]


def extents(text: str) -> list[list[tuple[Expr, ...] | None]]:
    return [[a.extent for a in launch.accesses] for launch in effects(manifest(text), "fill")]


def test_an_operator_s_operands_end_where_its_extents_say() -> None:
    product = "/programs/fill/dispatches/0/args"
    text = edited({f"{product}/3": '{"expr": {"mul": [{"sym": "rows"}, 1]}}', f"{product}/4": '{"i32": 96}'})
    rows = Mul(mul=(ROWS, 1))
    assert extents(text) == [[(rows, 96, 4), (rows, 64, 2), (96, 64, 2)], [None, None], [None, None]]


def test_an_operator_s_extents_may_be_the_step_s_own() -> None:
    text = edited({"/kernels/product/impl/steps/0/args/5": '{"i32": 32}'})
    assert extents(text)[0] == [(ROWS, 128, 4), (ROWS, 32, 2), (128, 32, 2)]


@pytest.mark.parametrize("extent", ['{"i32": 4294967424}', '{"u32": 128}', '{"f32": 1.0}', '{"buf": "total"}'])
def test_an_extent_that_is_not_an_i32_leaves_the_operands_without_an_end(extent: str) -> None:
    text = edited({"/programs/fill/dispatches/0/args/4": extent})
    assert extents(text)[0] == [None, None, None]


@pytest.mark.parametrize("extent", [-(2**31), 2**31 - 1])
def test_an_extent_at_a_bound_of_i32_is_kept(extent: int) -> None:
    text = edited({"/programs/fill/dispatches/0/args/4": f'{{"i32": {extent}}}'})
    assert extents(text)[0] == [(ROWS, extent, 4), (ROWS, 64, 2), (extent, 64, 2)]


def test_an_operator_accesses_what_it_does_whatever_its_step_says() -> None:
    text = edited({"/kernels/product/impl/steps/0/params/0": '"in buffer<bf16>"'})
    first = next(effects(manifest(text), "fill")).accesses[0]
    assert (first.name, first.writes, first.extent) == ("mixed", True, (ROWS, 128, 4))


@pytest.mark.parametrize(
    ("edits", "left"),
    [
        ({"/programs/step/dispatches/3/kernel": '"sumarize"'}, [(0, 0), (1, 0), (2, 0)]),
        ({"/kernels/scale/impl/steps": "[]"}, [(0, 0), (2, 0), (3, 0), (3, 1)]),
    ],
)
def test_a_kernel_that_is_unknown_or_empty_launches_nothing(edits: dict[str, str], left: list[tuple[int, int]]) -> None:
    assert [(launch.dispatch, launch.step) for launch in effects(manifest(edited(edits)), "step")] == left


@pytest.mark.parametrize(
    "edits",
    [
        {"/kernels/scale/impl/steps/0/args/1": '{"arg": 3}'},
        {"/kernels/scale/impl/steps/0/args/1": '{"arg": -1}'},
        {"/kernels/scale/impl/steps/0/args/1": '{"arg": 2}'},
        {"/kernels/scale/impl/steps/0/args/1": '{"f32": 1.0}'},
        {"/kernels/scale/impl/steps/0/args": '[{"arg": 0}]'},
        {"/kernels/scale/impl/steps/0/params": '["out buffer<f32>"]'},
        {"/programs/step/dispatches/1/args": '[{"buf": "scaled"}]'},
        {"/programs/step/dispatches/1/args/1": '{"f32": 1.0}'},
        {
            "/kernels/scale/impl/steps/0/args/1": '{"arg": -1}',
            "/programs/step/dispatches/1/args/2": '{"buf": "total"}',
        },
    ],
)
def test_a_pointer_that_leads_nowhere_has_no_access(edits: dict[str, str]) -> None:
    launch = list(effects(manifest(edited(edits)), "step"))[1]
    assert [a.name for a in launch.accesses] == ["scaled"]


@dataclass(frozen=True)
class Walk:
    """The accesses of a program, found in the JSON text alone."""

    document: Any

    def launches(self, program: str) -> Iterator[tuple[int, int, list[Any]]]:
        for index, dispatch in enumerate(self.document["programs"][program]["dispatches"]):
            kernel = self.document["kernels"].get(dispatch["kernel"])
            for number, step in enumerate([] if kernel is None else kernel["impl"]["steps"]):
                yield index, number, list(self.accesses(step, dispatch["args"]))

    def accesses(self, step: Any, given: list[Any]) -> Iterator[Any]:
        params = step["params"]
        name = step["symbol"].removeprefix("extern:")
        if step["symbol"] != name and name in OPERATORS:
            params = self.operator_params(name, params)
        for index in range(min(len(step["args"]), len(params))):
            arg, words = step["args"][index], params[index].split(" ")
            interface = arg.get("arg")
            if interface is not None:
                arg = given[interface] if 0 <= interface < len(given) else {}
            for key, kind in (("buf", "buffer"), ("state", "state"), ("scratch", "scratch")):
                if key in arg and words[0] in ("in", "out", "inout"):
                    reads, writes = words[0] != "out", words[0] != "in"
                    yield kind, arg[key], arg.get("offset", 0), reads, writes, index, interface

    @staticmethod
    def operator_params(name: str, params: list[str]) -> list[str]:
        own = [str(param) for param in OPERATORS[name].params]
        return params if [param.split(" align")[0] for param in params] == own else own


def assert_as_walked(document: Any, of: Manifest) -> int:
    """Hold every program's effects against the walk; how many accesses there were."""
    count = 0
    for program in of.programs:
        found = [
            (
                launch.dispatch,
                launch.step,
                [(a.kind, a.name, a.offset, a.reads, a.writes, a.position, a.interface) for a in launch.accesses],
            )
            for launch in effects(of, program)
        ]
        assert found == list(Walk(document).launches(program))
        count += sum(len(accesses) for _, _, accesses in found)
    return count


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
@given(any_documents)
def test_any_manifest_has_the_accesses_that_its_text_says(document: Any) -> None:
    assert_as_walked(document, manifest_of(document))


@pytest.mark.parametrize("name", valid_documents())
def test_valid_manifests_have_the_accesses_that_their_texts_say(name: str) -> None:
    document = valid_documents()[name]
    assert assert_as_walked(document, manifest_of(document)) > 3


@settings(max_examples=30, deadline=None)
@given(random_programs())
def test_a_scratch_is_accessed_at_its_offset(random: RandomProgram) -> None:
    assert_as_walked(json.loads(write(random.manifest)), random.manifest)
    for program in ("main", "small"):
        for launch in effects(random.manifest, program):
            dispatch = random.manifest.programs[program].dispatches[launch.dispatch]
            kernel = random.manifest.kernels[dispatch.kernel]
            written = [arg.offset for arg in kernel.impl.steps[launch.step].args if isinstance(arg, ScratchArg)]
            assert [a.offset for a in launch.accesses if a.kind == "scratch"] == written


def test_random_programs_have_scratch_at_offsets_other_than_zero() -> None:
    @settings(max_examples=30, database=None, derandomize=True)
    @given(random_programs())
    def collect(random: RandomProgram) -> None:
        for program in random.manifest.programs:
            for launch in effects(random.manifest, program):
                offsets.update(a.offset for a in launch.accesses if a.kind == "scratch")

    offsets: set[int] = set()
    collect()
    assert offsets == {0, 120}


@pytest.mark.parametrize("name", valid_documents())
def test_each_pointer_of_a_valid_dispatch_is_accessed_by_each_step_that_takes_it(name: str) -> None:
    of = manifest_of(valid_documents()[name])
    for program, body in of.programs.items():
        reached: dict[tuple[int, int], list[Access]] = {}
        for launch in effects(of, program):
            for access in launch.accesses:
                if access.interface is not None:
                    reached.setdefault((launch.dispatch, access.interface), []).append(access)
        pointers = {
            (index, position): arg
            for index, dispatch in enumerate(body.dispatches)
            for position, arg in enumerate(dispatch.args)
            if isinstance(arg, BufferArg | StateArg)
        }
        assert reached.keys() == pointers.keys()
        for key, accesses in reached.items():
            arg = pointers[key]
            target = (arg.buf if isinstance(arg, BufferArg) else arg.state, arg.offset)
            assert {(access.name, access.offset) for access in accesses} == {target}


@given(st.integers(1, 99), st.integers(1, 99), st.integers(1, 99), st.sampled_from(sorted(OPERATORS)))
def test_an_operator_s_operands_are_dense_matrices(m: int, n: int, k: int, name: str) -> None:
    c = 4 if "f32" in name else 2
    found = [prod(evaluate(factor, {}) for factor in extent) for extent in OPERATORS[name].extents(m, n, k)]
    assert found == [m * n * c, m * k * 2, n * k * 2]
