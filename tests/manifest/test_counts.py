"""Numbers and counts as people write them."""

from __future__ import annotations

import pytest

from kern.manifest.counts import counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "step", "0 steps"),
        (1, "step", "1 step"),
        (1388, "token", "1,388 tokens"),
        (1, "dispatch", "1 dispatch"),
        (2, "dispatch", "2 dispatches"),
        (1, "copy", "1 copy"),
        (2, "key", "2 keys"),
        (388, "copy", "388 copies"),
        (2**200, "byte", "about 2^201 bytes"),
    ],
)
def test_a_noun_agrees_with_its_count(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text
