"""Values as the names of tests show them."""

from __future__ import annotations


def without_address(value: object) -> str:
    """The repr without an address in memory, so that a test has one name in every process."""
    return repr(value).partition(" at 0x")[0]
