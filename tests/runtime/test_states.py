"""States: one per token, one per sequence, how large they are, and that their pages and blocks are separate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kern
from kern.device.base import OutOfMemory
from kern.manifest.builder import ManifestBuilder
from kern.runtime.errors import UnknownName, WrongSequence
from kern.runtime.executable import Executable
from kern.runtime.memory.sizes import BadPool
from support.artifacts import toy_kernels, write_artifact
from support.counted import BLOCK, PAGE, ROWS, SLOTS, VALUES, counted_artifact
from support.page_digests import changed_pages
from support.shown import without_address
from support.toy import COLUMNS, MODULE, single

TOY_PAGE = 16
"""Tokens in a page of the toy's pool: its granule."""

Load = Callable[..., Executable]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `support.counted`."""
    return counted_artifact(tmp_path_factory.mktemp("counted") / "artifact")


@pytest.fixture(params=["host", "fake", pytest.param("cuda", marks=pytest.mark.gpu)])
def load(
    request: pytest.FixtureRequest, counted: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Load]:
    """Loads it on the host, on the CUDA device over a driver that needs no GPU, and on a GPU."""
    opened: list[Executable] = []
    folder = counted
    if request.param == "fake":
        pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
        from support.cuda_driver import FakeDriver, HostCodeDevice

        FakeDriver().install(monkeypatch)
        monkeypatch.setattr("kern.runtime.loading.open_device", lambda name, tune: HostCodeDevice())
    elif request.param == "cuda":
        folder = counted_artifact(tmp_path / "artifact", request.getfixturevalue("gpu").target)

    def load(**options: Any) -> Executable:
        opened.append(kern.load(folder, **options))
        return opened[-1]

    yield load
    for executable in opened:
        executable.close()


def count(executable: Executable, slots: list[int], values: list[int], places: list[int]) -> None:
    rows = {"rows": len(slots)}
    for name, given in (("slots", slots), ("values", values), ("places", places)):
        executable.write(name, given, rows)
    executable.run("count", rows)


def counts(executable: Executable) -> np.ndarray:
    return executable.read_state("counts").view(np.int32).reshape(-1, VALUES)


@pytest.mark.parametrize(
    ("start", "rows", "pages"),
    [(0, 1, {0}), (15, 1, {0}), (16, 1, {1}), (15, 2, {0, 1}), (17, 16, {1, 2}), (63, 1, {3})],
)
def test_the_pages_that_a_call_wrote_are_found(toy: Path, start: int, rows: int, pages: set[int]) -> None:
    with kern.load(toy, capacity=4 * TOY_PAGE) as executable:
        executable.write("x", np.ones((rows, COLUMNS), np.float32), values := {"rows": rows, "start": start})
        assert changed_pages(executable, lambda: executable.run("fill", values), "pool") == pages
        assert changed_pages(executable, lambda: executable.run("recall", {"start": start}), "pool") == set()


def test_each_sequence_has_a_block_that_others_leave_alone(load: Load) -> None:
    executable, rng = load(sequences=7, pool_tokens=3 * PAGE), np.random.default_rng(3)
    expected = np.zeros((7, VALUES), np.int32)
    for _ in range(30):
        rows = int(rng.integers(1, ROWS + 1))
        slots, values = rng.integers(-1, 7, rows), rng.integers(0, VALUES, rows)
        places = rng.permutation(3 * PAGE)[:rows]

        def call(slots: Any = slots, values: Any = values, places: Any = places) -> None:
            count(executable, slots.tolist(), values.tolist(), places.tolist())

        assert changed_pages(executable, call, "counts") == set(slots[slots >= 0].tolist())
        np.add.at(expected, (slots[slots >= 0], values[slots >= 0]), 1)
        np.testing.assert_array_equal(counts(executable), expected)
        if rng.random() < 0.4:
            cleared = int(rng.integers(7))
            executable.clear("counts", sequence=np.int64(cleared) if rng.random() < 0.5 else cleared)
            expected[cleared] = 0
            np.testing.assert_array_equal(counts(executable), expected)
    executable.run("tell", {"held": SLOTS})
    np.testing.assert_array_equal(executable.read("seen"), expected[:SLOTS])
    assert expected.any(1).sum() > 3  # otherwise the test shows little


def test_clearing_a_block_is_ordered_with_what_runs(load: Load) -> None:
    executable = load(sequences=3)
    for sequence in (0, 1, 2, 1):
        count(executable, [0, 1, 2], [sequence] * 3, [0, 1, 2])
        executable.clear("counts", sequence=sequence)
    expected = [[0, 2, 1, 0, 0], [0] * 5, [0, 1, 0, 0, 0]]
    np.testing.assert_array_equal(counts(executable), expected)
    executable.clear("counts")
    assert not counts(executable).any()
    assert executable.read_state("pool").any()


@pytest.mark.parametrize("sequence", [3, -1, 2**70, True, 1.0, "1", [1]], ids=without_address)
def test_a_block_that_is_not_there_is_not_cleared(load: Load, sequence: Any) -> None:
    executable = load(sequences=3)
    count(executable, [0, 1, 2], [0, 1, 2], [0, 1, 2])
    before = counts(executable)
    with pytest.raises(WrongSequence, match=r"'counts' has 3 blocks, .* none for .*; give an integer in 0…2"):
        executable.clear("counts", sequence=sequence)
    with pytest.raises(WrongSequence, match="'pool' has bytes per token and no block for each sequence"):
        executable.clear("pool", sequence=0)
    with pytest.raises(UnknownName, match="unknown state"):
        executable.clear("slots", sequence=0)
    np.testing.assert_array_equal(counts(executable), before)
    assert executable.read_state("pool").any()


@pytest.mark.parametrize(
    ("options", "tokens"),
    [
        ({"pool_tokens": PAGE}, PAGE),
        ({"pool_tokens": 2 * PAGE - 1}, PAGE),
        ({"pool_tokens": np.int64(5 * PAGE), "capacity": 2, "sequences": 3}, 5 * PAGE),
        ({"pool_tokens": 2 * PAGE, "capacity": 100 * PAGE, "sequences": 50}, 2 * PAGE),
        ({"capacity": PAGE + 1, "sequences": 3}, 6 * PAGE),
        ({}, 4096),
    ],
)
def test_the_pool_and_the_blocks_are_counted_apart(load: Load, options: dict[str, Any], tokens: int) -> None:
    executable = load(**options)
    assert executable.pool_tokens == tokens
    assert executable.read_state("pool").nbytes == 4 * tokens
    assert executable.read_state("counts").nbytes == BLOCK * executable.sequences
    assert (executable.capacity, executable.sequences) == (options.get("capacity", 4096), options.get("sequences", 1))
    last = executable.pool_tokens // PAGE - 1
    place = executable.pool_tokens - 1
    assert changed_pages(executable, lambda: count(executable, [0], [1], [place]), "pool") == {last}


@pytest.mark.parametrize("given", [0, -1, PAGE - 1, 8.0, "64", True, [64]], ids=without_address)
def test_a_pool_has_at_least_one_granule(counted: Path, given: Any) -> None:
    with pytest.raises(BadPool, match=r"^pool_tokens is .*; the largest granule of a state is 8 tokens; give an in"):
        kern.load(counted, pool_tokens=given)


@pytest.mark.parametrize("tokens", [2**40, 2**70, 10**5000], ids=lambda tokens: f"{tokens.bit_length()} bits")
def test_a_pool_that_does_not_fit_is_refused_with_what_to_change(load: Load, tokens: int) -> None:
    with pytest.raises(OutOfMemory, match=r"bytes are planned .* fewer pool_tokens"):
        load(pool_tokens=tokens)


def of_states(folder: Path, **bytes_per_token: tuple[int, int]) -> Path:
    """A folder with these states: bytes per token and granule."""
    b = ManifestBuilder("states")
    b.kernel("remember", single("remember_f32", ("in buffer<f32>", "inout ptr", "i64", "i32")))
    x, program = b.input("x", "f32", (1,)), b.program("main")
    for name, (size, granule) in bytes_per_token.items():
        program.dispatch("remember", x, b.state(name, bytes_per_token=size, granule=granule), 0, 1)
    return write_artifact(folder, b.build(), {MODULE: toy_kernels()})


def test_every_state_per_token_has_the_pools_tokens_in_its_own_granules(tmp_path: Path) -> None:
    folder = of_states(tmp_path / "two", coarse=(4, 48), fine=(10, 16))
    with kern.load(folder, pool_tokens=100) as executable:
        assert executable.memory_plan.sizes.states == {"coarse": 4 * 96, "fine": 10 * 96}
        assert executable.pool_tokens == 96
    with kern.load(folder, pool_tokens=80) as executable:
        assert executable.memory_plan.sizes.states == {"coarse": 4 * 48, "fine": 10 * 80}
        assert executable.pool_tokens == 48
    with kern.load(folder, capacity=50, sequences=2) as executable:
        assert executable.memory_plan.sizes.states == {"coarse": 4 * 192, "fine": 10 * 128}
        assert executable.pool_tokens == 128
    with pytest.raises(BadPool, match="pool_tokens is 47; the largest granule of a state is 48 tokens"):
        kern.load(folder, pool_tokens=47)


def test_a_pool_without_a_state_per_token_is_refused(inputs_folder: Path) -> None:
    with kern.load(inputs_folder) as executable:
        assert executable.pool_tokens == 0
    with pytest.raises(BadPool, match=r"^pool_tokens is 64, but the manifest has no state with bytes per token; load"):
        kern.load(inputs_folder, pool_tokens=64)
