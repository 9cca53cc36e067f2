"""Expressions: exact values, exact bounds, and the wire form."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter, ValidationError

from kern.manifest.expressions import Add, CeilDiv, Expr, Mul, Sym, bounds, evaluate, show, symbols

EXPR: TypeAdapter[Any] = TypeAdapter(Expr, config=ConfigDict(strict=True))

NAMES = ("a", "b")


def expressions() -> st.SearchStrategy[Any]:
    leaves = st.integers(0, 2**40) | st.sampled_from([Sym(sym=name) for name in NAMES])
    factors = st.integers(1, 2**20)
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(lambda e, n: CeilDiv(ceil_div=(e, n)), inner, factors)
            | st.builds(lambda e, n: Mul(mul=(e, n)), inner, factors)
            | st.builds(lambda a, b: Add(add=(a, b)), inner, inner)
        ),
        max_leaves=8,
    )


@given(expressions(), st.tuples(st.integers(0, 6), st.integers(0, 6)), st.tuples(st.integers(0, 6), st.integers(0, 6)))
def test_bounds_contain_every_value_and_are_attained(expr: Any, a: tuple[int, int], b: tuple[int, int]) -> None:
    ranges = {"a": (min(a), max(a)), "b": (min(b), max(b))}
    corners = [range(low, high + 1) for low, high in ranges.values()]
    values = [evaluate(expr, dict(zip(NAMES, point, strict=True))) for point in itertools.product(*corners)]
    assert bounds(expr, ranges) == (min(values), max(values))


@given(expressions())
def test_the_wire_form_round_trips(expr: Any) -> None:
    assert EXPR.validate_json(EXPR.dump_json(expr)) == expr


@given(expressions())
def test_symbols_are_those_that_evaluation_needs(expr: Any) -> None:
    named = set(symbols(expr))
    evaluate(expr, dict.fromkeys(named, 1))
    for name in named:
        with pytest.raises(KeyError):
            evaluate(expr, dict.fromkeys(named - {name}, 1))


@pytest.mark.parametrize(
    ("over", "by", "value"), [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (2**62 + 1, 2, 2**61 + 1)]
)
def test_ceil_div_is_exact(over: int, by: int, value: int) -> None:
    assert evaluate(CeilDiv(ceil_div=(over, by)), {}) == value


def test_a_bare_string_is_a_symbol() -> None:
    assert EXPR.validate_json('{"mul": ["tokens", 2]}') == Sym(sym="tokens") * 2


@pytest.mark.parametrize(
    "text",
    ['{"mul": ["a"]}', '{"mul": ["a", 2, 3]}', '{"mul": ["a", "b"]}', '{"sub": ["a", 1]}', "1.0", "true", '""', "null"],
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        EXPR.validate_json(text)


def test_operators_build_what_they_say() -> None:
    tokens = Sym(sym="tokens")
    assert evaluate((tokens * 3 + tokens).over(16), {"tokens": 5}) == 2
    assert show((tokens + 1) * 2) == "(tokens + 1) * 2"
    assert show((tokens * 32).over(4)) == "ceil(tokens * 32 / 4)"
