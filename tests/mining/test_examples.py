"""The worked examples in the docstrings of kern.mining give what they show."""

from __future__ import annotations

import doctest
import importlib
from types import ModuleType

import pytest

from kern.manifest.params import Layout
from kern.mining.events import Kernel, Launch, Pointer
from kern.mining.schema import KernelAttributes
from support.recordings import packed

MODULES = (
    *("abi", "blocks", "call_sites", "expression_fit", "layouts", "parser", "pass_boundaries", "pointers"),
    *("segmentation", "symbols", "token_count"),
)


def launch(order: int, symbol: str, tokens: int, *addresses: int) -> Launch:
    """A launch of `tokens` blocks, given addresses and then the number of tokens."""
    sizes = (*(8 for _ in addresses), 4)
    layout = Layout(tuple(range(0, 8 * len(sizes), 8)), sizes)
    return Launch(
        order=order,
        line=order,
        time=1000 * order,
        thread=1,
        stream=7,
        kernel=Kernel(symbol, "0" * 64, layout, KernelAttributes(), None, ()),
        grid=(tokens, 1, 1),
        block=(128, 1, 1),
        shared=0,
        attributes={},
        params=tuple(packed(value, size) for value, size in zip((*addresses, tokens), sizes, strict=True)),
        pointers=tuple(Pointer(param, 0, address, "device", None, None) for param, address in enumerate(addresses)),
    )


@pytest.mark.parametrize("name", MODULES)
def test_the_example_gives_what_it_shows(name: str) -> None:
    module: ModuleType = importlib.import_module(f"kern.mining.{name}")

    done = doctest.testmod(module, extraglobs={"launch": launch})

    assert done.attempted
    assert not done.failed
