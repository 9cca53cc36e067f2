"""States: the blocks and pages that a call writes, and those that it must leave alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kern
from support.page_digests import changed_pages
from support.toy import COLUMNS

PAGE = 16
"""Tokens in a page of the toy's pool: its granule."""


@pytest.mark.parametrize(
    ("start", "rows", "pages"),
    [(0, 1, {0}), (15, 1, {0}), (16, 1, {1}), (15, 2, {0, 1}), (17, 16, {1, 2}), (63, 1, {3})],
)
def test_the_pages_that_a_call_wrote_are_found(toy: Path, start: int, rows: int, pages: set[int]) -> None:
    with kern.load(toy, capacity=4 * PAGE) as executable:
        executable.write("x", np.ones((rows, COLUMNS), np.float32), values := {"rows": rows, "start": start})
        assert changed_pages(executable, lambda: executable.run("fill", values), "pool") == pages
        assert changed_pages(executable, lambda: executable.run("recall", {"start": start}), "pool") == set()
