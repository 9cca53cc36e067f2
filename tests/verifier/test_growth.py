"""Time and memory of verifying grow with what is read, not with products of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kern.cli.diagnostics import as_dict
from kern.cli.outputs import json_text
from kern.manifest.reading import MAX_ERRORS, read
from kern.verification.report import locate
from kern.verifier import check
from support.growing import GROWING, READ, text
from support.work import growth, spread

LINEAR = 2.6
"""Between the 2 of linear growth and the 4 of squares."""
LINEAR_SPREAD = 16
"""Between the 8 of linear growth and the 64 of squares."""


@pytest.mark.parametrize("case", GROWING)
def test_checking_grows_linearly(case: str) -> None:
    def checking(n: int) -> Callable[[], object]:
        manifest = read(text(GROWING[case](n))).manifest
        assert manifest is not None
        return lambda: check(manifest)

    checking(4)()  # what is imported at first use is not counted
    assert growth(checking, 24) < LINEAR
    assert spread(checking, 50) < LINEAR_SPREAD


@pytest.mark.parametrize("case", READ)
def test_reading_and_showing_what_is_refused_grows_linearly(case: str) -> None:
    def reading(n: int) -> Callable[[], object]:
        data = text(READ[case](n))

        def report() -> str:
            found = read(data)
            assert found.manifest is None
            assert len(found.diagnostics) <= MAX_ERRORS + 1
            return json_text(as_dict(locate(Path("m"), found.source, found.diagnostics)), indent=1)

        return report

    reading(4)()
    assert growth(reading, 8) < LINEAR
    assert spread(reading, 12) < LINEAR_SPREAD
