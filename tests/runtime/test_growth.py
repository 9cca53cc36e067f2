"""Planning and addressing grow with the manifest, and what would not is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kern.manifest.reading import read
from kern.manifest.references import program_symbols
from kern.runtime.memory.address_table import Bases, addresses
from kern.runtime.memory.planner import TooManyBlocks, plan
from kern.verifier import VerifiedManifest, verified
from support.growing import GROWING, array, call, copy, program, text
from support.work import growth, spread

VALID = ("buffers and programs", "kernels and programs", "symbols and steps")


def proven(document: dict[str, object]) -> VerifiedManifest:
    manifest = read(text(document)).manifest
    assert manifest is not None
    return verified(manifest)


@pytest.mark.parametrize("case", VALID)
def test_planning_grows_linearly(case: str) -> None:
    def planning(n: int) -> Callable[[], object]:
        checked = proven(GROWING[case](n))

        def work() -> object:
            return addresses(checked.manifest, plan(checked), Bases({}, 0, 0, 0)), program_symbols(checked.manifest)

        return work

    planning(4)()
    assert growth(planning, 24) < 2.6
    assert spread(planning, 50) < 16


def test_too_many_blocks_alive_at_once_are_refused() -> None:
    """3,000 buffers that all live from one end of the program to the other make 4.5 million pairs."""
    names = [f"b{index}" for index in range(3000)]
    calls = [*(call(name) for name in names), *(call("y", name) for name in names)]
    buffers = {name: array("workspace") for name in names}
    ends = {"x": array("input"), "y": array("output")}
    checked = proven(copy(buffers={**ends, **buffers}, programs={"p": program(*calls)}))
    with pytest.raises(TooManyBlocks, match="4,498,500 pairs") as refusal:
        plan(checked)
    assert refusal.value.help
