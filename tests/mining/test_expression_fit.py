"""Expressions are recovered from their values, and what is not certain is reported."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kern.manifest.expressions import Expr, evaluate, show
from kern.mining.expression_fit import TOKENS, fit

COUNTS = (1, 2, 16, 34, 85, 175, 709, 4096)

expressions: st.SearchStrategy[Expr] = st.one_of(
    st.integers(0, 2**20),
    st.just(TOKENS),
    st.integers(2, 2**16).map(lambda factor: TOKENS * factor),
    st.integers(1, 500).map(lambda constant: TOKENS + constant),
    st.integers(2, 128).map(lambda divisor: TOKENS.over(divisor)),
    st.integers(2, 64).map(lambda divisor: (TOKENS + 1).over(divisor)),
    st.builds(lambda divisor, factor: TOKENS.over(divisor) * factor, st.integers(2, 64), st.integers(2, 64)),
    st.builds(lambda factor, constant: TOKENS * factor + constant, st.integers(2, 2000), st.integers(1, 99)),
    st.builds(lambda factor, divisor: (TOKENS * factor).over(divisor), st.integers(2, 9), st.integers(2, 9)),
    st.builds(lambda factor, times: (TOKENS * factor).over(16) * times, st.integers(3, 9), st.integers(2, 9)),
)


def sampled(expression: Expr, counts: tuple[int, ...]) -> list[tuple[int, int]]:
    return [(tokens, evaluate(expression, {"tokens": tokens})) for tokens in counts]


@settings(max_examples=300, deadline=None)
@given(expressions)
def test_an_expression_is_recovered_from_its_values(expression: Expr) -> None:
    """What fits gives other values too; what is called ambiguous gives those that were seen."""
    found = fit(sampled(expression, COUNTS))
    assert found.expression is not None
    others = (3, 64, 333, 2048, 8192) if found.status == "fit" else COUNTS
    assert sampled(found.expression, others) == sampled(expression, others), show(found.expression)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 10**6)), max_size=8))
def test_whatever_is_found_gives_what_was_seen(samples: list[tuple[int, int]]) -> None:
    found = fit(samples)
    if found.status in ("fit", "underdetermined") and found.expression is not None:
        assert sampled(found.expression, tuple(t for t, _ in samples)) == samples
    else:
        assert found.why


@pytest.mark.parametrize(
    ("samples", "status", "expression", "why"),
    [
        ([(1, 7), (16, 7)], "fit", "7", ""),
        ([(1, 32), (16, 512)], "fit", "tokens * 32", ""),
        ([(1, 1), (16, 5), (34, 9)], "fit", "ceil((tokens + 1) / 4)", ""),
        ([(1, 1), (85, 3), (4096, 128)], "fit", "ceil(tokens / 32)", ""),
        ([(1, 1), (85, 22), (1023, 256)], "underdetermined", "ceil(tokens / 4)", "so does ceil((tokens + 1) / 4)"),
        ([(1, 2), (16, 10), (34, 22), (85, 54), (4096, 2560)], "fit", "ceil(tokens * 5 / 16) * 2", ""),
        ([(1, 0), (16, 4), (34, 8), (4096, 1024)], "fit", "ceil((tokens + 1) / 4) - 1", ""),
        ([(1, 5)], "underdetermined", "5", "only seen at tokens = 1"),
        ([(1, 1), (16, 4)], "underdetermined", "ceil(tokens / 4)", "so does ceil(tokens / 5)"),
        ([(1, 1024), (16, 6144), (34, 6144)], "masked", "6144", "but 1024 at tokens = 1"),
        ([(1, 5), (1, 6), (16, 5)], "unfit", None, "varies between passes of equal token count: 5 and 6 at 1"),
        ([(1, 9), (16, 2), (34, 2), (85, 3)], "unfit", None, "1 → 9, 16 … 34 → 2, 85 → 3"),
        ([], "unfit", None, "never seen"),
    ],
)
def test_certain_and_uncertain_cases(
    samples: list[tuple[int, int]], status: str, expression: str | None, why: str
) -> None:
    found = fit(samples)
    shown = None if found.expression is None else show(found.expression)
    assert (found.status, shown) == (status, expression)
    assert why in found.why
