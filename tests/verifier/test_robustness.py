"""No manifest of the right form makes the verifier crash, hang or contradict itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kern.cli.explain import all_codes
from kern.manifest.expressions import Expr, Interval, bounds, evaluate
from kern.manifest.reading import MAX_NESTING, read
from kern.manifest.types import VERSION
from kern.verifier import InvalidManifest, check, verified
from kern.verifier.example import BASE
from kern.verifier.expressions import divisor, interval
from support.any_manifest import documents, manifest_of
from support.edited_example import edited

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
@given(documents)
def test_any_manifest_is_answered(document: Any) -> None:
    manifest = manifest_of(document)
    found = check(manifest)
    assert all(d.code in all_codes() and d.message and d.help and isinstance(d.pointer, str) for d in found)
    assert len(set(found)) == len(found)
    assert check(manifest) == found
    if found:
        with pytest.raises(InvalidManifest) as caught:
            verified(manifest)
        assert caught.value.diagnostics == found
    else:
        assert verified(manifest).manifest is manifest


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(documents)
def test_locations_are_in_the_document(document: Any) -> None:
    text = json.dumps(document)
    reading = read(text.encode())
    if reading.manifest is None:  # with a number of 20 digits, which is looked at twice, the version is checked later
        assert document["meta"]["version"] != VERSION
        assert [diagnostic.code for diagnostic in reading.diagnostics] == ["K0201"]
        return
    for diagnostic in check(reading.manifest):
        path = diagnostic.path
        # A field that is left out has its default: the location is then its parent's.
        assert path in reading.source.spans or path[:-1] in reading.source.spans, diagnostic


symbol_ranges = st.fixed_dictionaries(
    {name: st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda p: (min(p), max(p))) for name in "xy"}
)
factors = st.one_of(st.integers(1, 9), st.integers(1, 2**62))
exact: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.integers(-100, 100), st.sampled_from(("x", "y"))),
    lambda inner: st.one_of(
        st.tuples(inner, factors).map(lambda pair: {"mul": pair}),
        st.tuples(inner, factors).map(lambda pair: {"ceil_div": pair}),
        st.tuples(inner, inner).map(lambda pair: {"add": pair}),
    ),
    max_leaves=8,
)


def parsed(form: Any) -> Expr:
    """An expression, read as a manifest reads it."""
    document = {"dtype": "u8", "shape": [form], "class": "workspace"}
    manifest = json.loads(BASE)
    manifest["buffers"]["total"] = document
    read_manifest = read(json.dumps(manifest).encode()).manifest
    assert read_manifest is not None
    return read_manifest.buffers["total"].shape[0]


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(exact, symbol_ranges, st.data())
def test_bounds_contain_every_value_and_are_attained(
    form: Any, ranges: dict[str, Interval], data: st.DataObject
) -> None:
    expr = parsed(form)
    found = interval(expr, ranges)
    assert found is not None
    assert found == bounds(expr, ranges)
    low, high = found
    assert evaluate(expr, {name: least for name, (least, _) in ranges.items()}) == low
    assert evaluate(expr, {name: most for name, (_, most) in ranges.items()}) == high
    for _ in range(5):
        values = {name: data.draw(st.integers(*pair)) for name, pair in ranges.items()}
        value = evaluate(expr, values)
        assert low <= value <= high
        by = divisor(expr, ranges)
        assert value % by == 0 if by else value == 0


def test_deep_expressions_and_huge_numbers_are_answered() -> None:
    deep = '{"sym": "rows"}'
    for _ in range((MAX_NESTING - 12) // 2):
        deep = f'{{"mul": [{deep}, {2**62}]}}'
    for pointer in (
        "/buffers/mixed/shape/0",
        "/kernels/scale/impl/steps/0/grid/0",
        "/programs/fill/dispatches/2/args/3/expr",
    ):
        reading = read(edited({pointer: deep}).encode())
        assert reading.manifest is not None, reading.diagnostics
        assert {d.code for d in check(reading.manifest)} <= {"K0405", "K0506", "K0709"}
        assert check(reading.manifest)
    many = "[" + ", ".join([str(2**62)] * 64) + "]"
    manifest = read(edited({"/buffers/total/shape": many}).encode()).manifest
    assert manifest is not None
    assert [d.code for d in check(manifest)] == ["K0405"]


def test_only_the_first_of_many_unknown_names_are_searched_for() -> None:
    document = json.loads(BASE)
    for index in range(600):
        document["buffers"][f"weight{index:05}.projection"] = {"dtype": "f32", "shape": [1], "class": "workspace"}
        args = [{"buf": f"weigth{index:05}.projection"}, {"buf": "mixed"}, {"f32": 1.0}]
        document["programs"]["fill"]["dispatches"].append({"kernel": "scale", "args": args})
    found = check(manifest_of(document))
    assert [d.code for d in found] == ["K0702"] * 600
    near = ["did you mean `weight" in d.help for d in found]
    assert near == sorted(near, reverse=True)
    assert 0 < sum(near) < 600
