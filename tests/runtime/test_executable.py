"""An executable at work: inputs, programs, graphs, outputs, states, and its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import kern
from kern.manifest.builder import ManifestBuilder
from kern.runtime.errors import Closed, NotReadable, NotWritable, UnknownName
from kern.runtime.executable import Executable
from kern.runtime.symbols import SymbolError, SymbolMissing, SymbolOutOfBounds, SymbolUnknown
from support.artifacts import toy_kernels, write_artifact
from support.inputs import DTYPES
from support.programs import RESULT_COLUMNS, RandomProgram, random_programs
from support.toy import CAPACITY, COLUMNS, MODULE, ROWS, gained, single, toy_artifact, toy_weights

WEIGHTS = toy_weights()


@pytest.fixture
def executable(toy: Path) -> Iterator[Executable]:
    with kern.load(toy, capacity=CAPACITY) as loaded:
        yield loaded


def rows(count: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(-50, 50, (count, COLUMNS)).astype(np.float32)


def test_a_program_computes_what_its_kernels_do(executable: Executable) -> None:
    x = rows(5)
    executable.write("x", x, {"rows": 5})
    executable.run("fill", {"rows": 5, "start": 0})
    expected = gained(x, WEIGHTS)
    np.testing.assert_array_equal(executable.read("seen", {"rows": 5}), expected)
    np.testing.assert_array_equal(executable.read("total"), expected.sum(0))
    assert executable.read("sum") == expected.sum()
    assert executable.read("count") == 1


def test_carries_states_and_kept_scratch_outlive_a_run_and_workspace_is_shared_by_programs(
    executable: Executable,
) -> None:
    x = rows(6)
    for start, count in ((0, 3), (3, 2)):
        executable.write("x", x[start : start + count], {"rows": count})
        executable.run("fill", {"rows": count, "start": start})
    executable.write("x", x[5:], {"rows": 1})
    executable.run("step", {"rows": 1, "start": 5})
    executable.run("recall", {"start": 6})
    expected = gained(x, WEIGHTS).sum(0)
    np.testing.assert_array_equal(executable.read("total"), expected)
    np.testing.assert_array_equal(executable.read("kept"), expected)
    assert executable.read("count") == 3


def test_a_cleared_state_is_zero_and_others_stay(executable: Executable) -> None:
    executable.write("x", rows(4), {"rows": 4})
    executable.run("fill", {"rows": 4, "start": 0})
    total = executable.read("total")
    executable.clear("pool")
    assert not executable.read_state("pool").any()
    executable.run("recall", {"start": 4})
    assert not executable.read("kept").any()
    np.testing.assert_array_equal(executable.read("total"), total)


def test_a_state_is_read_as_its_bytes(executable: Executable) -> None:
    executable.write("x", x := rows(4), {"rows": 4})
    executable.run("fill", {"rows": 4, "start": 2})
    found = executable.read_state("pool")
    assert (found.dtype, found.nbytes) == (np.uint8, executable.memory_plan.sizes.states["pool"])
    np.testing.assert_array_equal(found.view(np.float32).reshape(-1, COLUMNS)[2:6], gained(x, WEIGHTS))


def test_an_asynchronous_read_has_the_values_at_its_point_of_the_stream(executable: Executable) -> None:
    executable.write("x", rows(1), {"rows": 1})
    executable.run("step", {"rows": 1, "start": 0})
    pending = executable.read_async("total")
    executable.run("step", {"rows": 1, "start": 1})
    executable.synchronize()
    assert pending.done()
    np.testing.assert_array_equal(pending.wait() * 2, executable.read("total"))


def test_profiling_runs_the_program_and_times_each_launch(executable: Executable) -> None:
    values = {"rows": 2, "start": 0}
    before = executable.read("count")
    times = executable.profile("fill", values)
    assert executable.read("count") != before
    dispatches = executable.manifest.programs["fill"].dispatches
    expected = [
        (dispatch.kernel, step)
        for dispatch in dispatches
        for step in range(len(executable.manifest.kernels[dispatch.kernel].impl.steps))
    ]
    assert [(time.kernel, time.step) for time in times] == expected
    assert all(time.label.startswith("fill · ") and time.label.endswith(f"step {time.step}") for time in times)
    assert all(time.seconds > 0 for time in times)
    with pytest.raises(UnknownName):
        executable.profile("none", values)


def test_a_graph_equals_eager_byte_for_byte(toy: Path) -> None:
    calls = [("fill", {"rows": 3, "start": 0}), ("step", {"rows": 1, "start": 3}), ("recall", {"start": 4})]
    seen = []
    with kern.load(toy, capacity=CAPACITY) as eager, kern.load(toy, capacity=CAPACITY) as graphed:
        graph = graphed.graph(calls)
        assert graph.calls == tuple(calls)
        for turn in range(3):
            for executable in (eager, graphed):
                executable.write("x", rows(4, seed=turn), {"rows": 4})
            for program, values in calls:
                eager.run(program, values)
            graph.launch()
            names = ("seen", "total", "kept", "count")
            seen += [[executable.read(name).tobytes() for name in names] for executable in (eager, graphed)]
    assert seen[0::2] == seen[1::2]
    assert seen[0] != seen[2]


def test_recording_a_graph_runs_nothing(executable: Executable) -> None:
    executable.graph([("fill", {"rows": 3, "start": 0})])
    assert executable.read("count") == 0


def ran(folder: Path, random: RandomProgram, sharing: bool, graph: bool) -> list[bytes]:
    x = np.arange(random.rows * random.columns, dtype=np.uint32) * np.uint32(2654435761)
    bound = random.manifest.programs["small"].symbols["rows"].max
    calls = [("main", {"rows": random.rows, "shift": 1}), ("small", {"rows": bound, "shift": 0})] * 2
    results = []
    with kern.load(folder, sharing=sharing) as executable:
        executable.write("x", x.reshape(-1, random.columns), calls[0][1])
        for program, values in calls:
            if graph:
                executable.graph([(program, values)]).launch()
            else:
                executable.run(program, values)
            result = executable.read("result", values)
            assert result.shape == (values["rows"], RESULT_COLUMNS)
            results += [result.tobytes(), executable.read("told").tobytes()]
    return results


@given(random_programs())
@settings(max_examples=20, deadline=None)
def test_sharing_memory_and_graphs_change_no_byte(random: RandomProgram) -> None:
    with TemporaryDirectory() as directory:
        folder = write_artifact(Path(directory, "artifact"), random.manifest, {MODULE: toy_kernels()})
        unshared = ran(folder, random, sharing=False, graph=False)
        assert unshared == ran(folder, random, sharing=True, graph=False)
        assert unshared == ran(folder, random, sharing=True, graph=True)


def test_two_executables_do_not_disturb_each_other(tmp_path: Path, toy: Path) -> None:
    other_weights = toy_weights(seed=5)
    other = toy_artifact(tmp_path / "other", other_weights)
    with kern.load(toy, capacity=CAPACITY) as first, kern.load(other, capacity=CAPACITY) as second:
        for executable, seed in ((first, 1), (second, 2)):
            executable.write("x", rows(4, seed), {"rows": 4})
        for executable in (first, second, second):
            executable.run("fill", {"rows": 4, "start": 0})
        assert (first.read("count"), second.read("count")) == (1, 2)
        first.close()
        np.testing.assert_array_equal(second.read("seen", {"rows": 4}), gained(rows(4, 2), other_weights))
        second.run("recall", {"start": 4})
        np.testing.assert_array_equal(second.read("kept"), gained(rows(4, 2), other_weights).sum(0))


@pytest.mark.parametrize(
    ("program", "values", "error"),
    [
        ("fill", {"rows": ROWS + 1, "start": 0}, SymbolOutOfBounds),
        ("fill", {"rows": 0, "start": 0}, SymbolOutOfBounds),
        ("fill", {"rows": 1, "start": -1}, SymbolOutOfBounds),
        ("step", {"rows": 2, "start": 0}, SymbolOutOfBounds),
        ("fill", {"rows": True, "start": 0}, SymbolOutOfBounds),
        ("fill", {"rows": 1.0, "start": 0}, SymbolOutOfBounds),
        ("fill", {"rows": np.True_, "start": 0}, SymbolOutOfBounds),
        ("fill", {"rows": np.float32(1), "start": 0}, SymbolOutOfBounds),
        ("fill", {"rows": "1", "start": 0}, SymbolOutOfBounds),
        ("fill", {"rows": np.int64(ROWS + 1), "start": 0}, SymbolOutOfBounds),
        ("fill", {"rows": 1}, SymbolMissing),
        ("fill", {"rows": 1, "start": 0, "columns": 1}, SymbolUnknown),
        ("recall", {"start": 0, "rows": 99}, SymbolOutOfBounds),
        ("begin", {}, UnknownName),
    ],
)
def test_calls_with_wrong_values_are_refused_and_run_nothing(
    executable: Executable, program: str, values: dict[str, int], error: type[Exception]
) -> None:
    with pytest.raises(error):
        executable.run(program, values)
    with pytest.raises(error):
        executable.graph([("fill", {"rows": 1, "start": 0}), (program, values)])
    assert executable.read("count") == 0


@pytest.mark.parametrize("integer", [np.int64, np.uint8, np.array])
def test_integers_of_numpy_are_values(executable: Executable, integer: Callable[[int], Any]) -> None:
    x = rows(3)
    executable.write("x", x, {"rows": 3})
    executable.run("fill", {"rows": integer(3), "start": integer(0)})
    graph = executable.graph([("recall", {"start": integer(3)})])
    graph.launch()
    np.testing.assert_array_equal(executable.read("kept"), gained(x, WEIGHTS).sum(0))
    np.testing.assert_array_equal(executable.read("seen", {"rows": integer(2)}), gained(x, WEIGHTS)[:2])


def test_a_value_that_is_not_an_integer_is_reported_as_such(executable: Executable) -> None:
    with pytest.raises(SymbolOutOfBounds, match=r"rows is a float32, .*, not an integer; give an integer in 1…16"):
        executable.run("fill", {"rows": np.float32(1), "start": 0})


def test_a_declared_symbol_that_a_program_does_not_name_may_be_given(executable: Executable) -> None:
    executable.run("recall", {"start": 0, "rows": 1})


@pytest.mark.parametrize("rows", [0, ROWS + 1])
def test_reading_at_values_out_of_bounds_is_refused(executable: Executable, rows: int) -> None:
    with pytest.raises(SymbolError):
        executable.read("seen", {"rows": rows})


@pytest.mark.parametrize("name", ["gained", "x", "bias"])
def test_the_host_reads_outputs_and_carries_only(executable: Executable, name: str) -> None:
    with pytest.raises(NotReadable, match=name):
        executable.read(name)


def test_with_sharing_off_every_buffer_can_be_read(toy: Path) -> None:
    with kern.load(toy, capacity=CAPACITY, sharing=False) as executable:
        x = rows(7)
        executable.write("x", x, {"rows": 7})
        executable.run("fill", {"rows": 7, "start": 0})
        np.testing.assert_array_equal(executable.read("x", {"rows": 7}), x)
        np.testing.assert_array_equal(executable.read("biased", {"rows": 7}), x + WEIGHTS["bias"])
        np.testing.assert_array_equal(executable.read("gained", {"rows": 7}), gained(x, WEIGHTS))
        np.testing.assert_array_equal(executable.read("gain"), WEIGHTS["gain"])


@pytest.mark.parametrize("name", ["seen", "total", "gained", "bias"])
def test_the_host_writes_inputs_only(executable: Executable, name: str) -> None:
    with pytest.raises(NotWritable, match=name):
        executable.write(name, np.zeros(1, np.float32))


def test_unknown_names_are_refused_with_the_declared_ones(executable: Executable) -> None:
    with pytest.raises(UnknownName, match=r"unknown buffer 'y'.*total"):
        executable.read("y")
    with pytest.raises(UnknownName, match="unknown buffer"):
        executable.write("pool", np.zeros(1, np.float32))
    with pytest.raises(UnknownName, match=r"unknown state 'x'.*pool"):
        executable.clear("x")
    with pytest.raises(UnknownName, match=r"unknown state 'total'.*pool"):
        executable.read_state("total")


def test_arrays_of_every_dtype_arrive_and_return_as_they_were(tmp_path: Path) -> None:
    b = ManifestBuilder("copies")
    program = b.program("copy")
    for dtype, scalar in DTYPES.items():
        b.kernel(f"copy_{dtype}", single("copy_bytes", (f"out buffer<{dtype}>", f"in buffer<{dtype}>", "i32")))
        source, target = b.input(f"in_{dtype}", dtype, (8,)), b.output(f"out_{dtype}", dtype, (8,))
        program.dispatch(f"copy_{dtype}", target, source, 8 * np.dtype(scalar).itemsize)
    folder = write_artifact(tmp_path / "copies", b.build(), {MODULE: toy_kernels()})
    with kern.load(folder) as executable:
        written = {dtype: np.arange(8).astype(scalar) for dtype, scalar in DTYPES.items()}
        for dtype, array in written.items():
            executable.write(f"in_{dtype}", array)
        executable.run("copy", {})
        for dtype, array in written.items():
            read = executable.read(f"out_{dtype}")
            assert read.dtype == array.dtype
            np.testing.assert_array_equal(read, array)


def test_check_runs_launch_by_launch_and_gives_the_same(toy: Path) -> None:
    with kern.load(toy, capacity=CAPACITY, check=True) as executable:
        executable.write("x", rows(2), {"rows": 2})
        executable.run("fill", {"rows": 2, "start": 0})
        executable.graph([("fill", {"rows": 2, "start": 0})]).launch()
        assert executable.read("count") == 2


def test_nothing_works_after_close(toy: Path) -> None:
    with kern.load(toy, capacity=CAPACITY) as executable:
        graph = executable.graph([("recall", {"start": 0})])
        ended = executable.graph([("recall", {"start": 0})])
        ended.close()
        ended.close()
        with pytest.raises(Closed):
            ended.launch()
        graph.launch()
    executable.close()
    for use in (
        lambda: executable.write("x", np.zeros(1, np.float32)),
        lambda: executable.run("recall", {"start": 0}),
        lambda: executable.graph([]),
        lambda: executable.read("total"),
        lambda: executable.read_async("total"),
        lambda: executable.clear("pool"),
        lambda: executable.read_state("pool"),
        executable.synchronize,
        graph.launch,
    ):
        with pytest.raises(Closed):
            use()
    graph.close()


def test_an_executable_describes_itself(executable: Executable, toy: Path) -> None:
    assert executable.path == toy
    assert executable.manifest.meta.model == "toy"
    assert executable.device.name == "host"
    assert (executable.capacity, executable.sequences) == (CAPACITY, 1)
    assert executable.memory_plan.sizes.states == {"pool": CAPACITY * 4 * COLUMNS}
    assert [module.name for module in executable.resolution.modules] == [MODULE]
