"""Every way of calling an executable wrongly is an error of kern's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kern
from kern.manifest.errors import KernError
from kern.runtime.errors import UnknownName
from kern.runtime.executable import Executable
from kern.runtime.graph import WrongCalls
from kern.runtime.memory.sizes import BadCapacity
from kern.runtime.shapes import MAX_SHAPES
from kern.runtime.symbols import SymbolError, SymbolMissing, SymbolOutOfBounds, SymbolUnknown
from support.shown import without_address

Use = Callable[[Executable], Any]
OTHER_NAMES: list[Any] = ["x", "", None, 0, 1.5, b"f32", ["f32"], {"f32": 1}, ("f32",), object(), np.array(["f32"])]
VALUES: list[tuple[Any, type[KernError]]] = [
    ("", SymbolError),
    ("f=1", SymbolError),
    (4, SymbolError),
    ([("f", 1)], SymbolError),
    ({"f"}, SymbolError),
    (np.array([1]), SymbolError),
    ({}, SymbolMissing),
    ({"f": 1, "h": 1}, SymbolMissing),
    ({"f": 1, "h": 1, "w": 1, "n": 1}, SymbolUnknown),
    ({"f": 1, "h": 1, "w": 1, None: 1}, SymbolUnknown),
    ({"f": 1, "h": 1, "w": 1, 4: 1}, SymbolUnknown),
    *(
        ({"f": bad, "h": 1, "w": 1}, SymbolOutOfBounds)
        for bad in (-1, 0, 5, 2**70, None, "1", 1.0, True, np.True_, [1])
    ),
    *(({"f": bad, "h": 1, "w": 1}, SymbolOutOfBounds) for bad in (np.float32(1), np.nan, np.array([1]), 1j, b"1")),
]


@pytest.mark.parametrize("name", OTHER_NAMES, ids=without_address)
def test_unknown_names_are_refused_in_every_call(executable: Executable, name: Any) -> None:
    uses: list[Use] = [
        lambda e: e.write(name, [0.0]),
        lambda e: e.read(name),
        lambda e: e.read_async(name),
        lambda e: e.read_state(name),
        lambda e: e.clear(name),
        lambda e: e.run(name, {"f": 1, "h": 1, "w": 1}),
        lambda e: e.profile(name, {"f": 1, "h": 1, "w": 1}),
        lambda e: e.graph([(name, {"f": 1, "h": 1, "w": 1})]),
    ]
    for use in uses:
        with pytest.raises(UnknownName, match=r"^unknown (buffer|state|program) "):
            use(executable)


@pytest.mark.parametrize(("values", "error"), VALUES, ids=without_address)
def test_wrong_symbol_values_are_refused_in_every_call(
    executable: Executable, values: Any, error: type[KernError]
) -> None:
    array = np.zeros((1, 1, 1), np.float32)
    executable.read("video", {"f": 1, "h": 1, "w": 1})  # what equals these may not pass for them
    uses: list[Use] = [
        lambda e: e.write("video", array, values),
        lambda e: e.read("video", values),
        lambda e: e.read_async("video", values),
        lambda e: e.run("run", values),
        lambda e: e.profile("run", values),
        lambda e: e.graph([("run", values)]),
    ]
    for use in uses:
        with pytest.raises(error):
            use(executable)


def test_a_program_needs_values(executable: Executable) -> None:
    nothing: Any = None
    uses: list[Use] = [
        lambda e: e.run("run", nothing),
        lambda e: e.profile("run", nothing),
        lambda e: e.graph([("run", nothing)]),
    ]
    for use in uses:
        with pytest.raises(SymbolError, match=r"the symbol values are a NoneType, None; give a dict"):
            use(executable)


@pytest.mark.parametrize(
    "calls", [None, 3, "run", ("run", {"f": 1}), [("run",)], ["run"], [None], [("run", {}, 1)]], ids=without_address
)
def test_a_graph_is_a_list_of_calls(executable: Executable, calls: Any) -> None:
    with pytest.raises(WrongCalls, match="a graph records a list of calls"):
        executable.graph(calls)


def test_a_graph_keeps_the_calls_that_an_iterator_gave(executable: Executable) -> None:
    values = {"f": 1, "h": 1, "w": 1}
    graph = executable.graph(("run", values) for _ in range(2))  # type: ignore[arg-type]
    values["f"] = 9
    assert graph.calls == (("run", {"f": 1, "h": 1, "w": 1}),) * 2


def test_each_of_more_shapes_than_are_kept_is_right(executable: Executable) -> None:
    every = [{"f": f, "h": h, "w": w} for f in range(1, 5) for h in range(1, 4) for w in range(1, 6)]
    assert len(every) > MAX_SHAPES
    for values in (*every, *every):
        assert executable.read("video", values).shape == tuple(values.values())


@pytest.mark.parametrize("count", [None, "4", 0, -1, 1.5, True, np.float32(4), [4]], ids=without_address)
def test_a_capacity_is_an_integer_of_at_least_one(inputs_folder: Path, count: Any) -> None:
    with pytest.raises(BadCapacity, match="capacity is"):
        kern.load(inputs_folder, capacity=count)
    with pytest.raises(BadCapacity, match="sequences is"):
        kern.load(inputs_folder, sequences=count)


def test_the_error_to_catch_is_public() -> None:
    assert kern.KernError is KernError
    with pytest.raises(kern.KernError) as caught:
        kern.load("/nowhere")
    assert caught.value.message
    assert caught.value.help
