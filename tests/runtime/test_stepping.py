"""Programs run launch by launch: what hooks see before and after each launch, and what becomes of their errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

import kern
from kern.manifest.builder import ManifestBuilder
from kern.manifest.expressions import Mul
from kern.manifest.types import Arg, Impl, Kernel, ScratchArg
from kern.runtime.errors import Closed, UnknownName
from kern.runtime.executable import Executable
from kern.runtime.stepping import MemoryAccess, SteppedLaunch
from kern.runtime.symbols import SymbolOutOfBounds
from support.artifacts import toy_kernels, write_artifact
from support.programs import RandomProgram, random_programs
from support.toy import CAPACITY, COLUMNS, MODULE, gained, step, toy_weights

VALUES = {"rows": 3, "start": 2}
X = np.arange(3 * COLUMNS, dtype=np.float32).reshape(3, COLUMNS)


@pytest.fixture(params=[False, True], ids=["unchecked", "checked"])
def executable(toy: Path, request: pytest.FixtureRequest) -> Iterator[Executable]:
    """The toy with its input written, workspace shared."""
    with kern.load(toy, capacity=CAPACITY, check=request.param) as loaded:
        loaded.write("x", X, {"rows": 3})
        yield loaded


def named(launch: SteppedLaunch, name: str) -> MemoryAccess:
    """The one access of a launch to the array or state `name`."""
    (found,) = [access for access in launch.accesses if access.declared.name == name]
    return found


def test_hooks_are_called_around_each_launch_in_order(executable: Executable) -> None:
    seen: list[tuple[str, str]] = []
    executable.step(
        "fill",
        VALUES,
        before=lambda launch: seen.append(("before", launch.label)),
        after=lambda launch: seen.append(("after", launch.label)),
    )
    labels = [time.label for time in executable.profile("fill", VALUES)]
    assert seen == [(when, label) for label in labels for when in ("before", "after")]


def test_a_launch_says_what_it_is(executable: Executable) -> None:
    launches: list[SteppedLaunch] = []
    executable.step("fill", {**VALUES, "rows": np.int64(3)}, before=launches.append)
    first, last = launches[0], launches[-1]
    assert first.label == "fill · bias · add_scaled · step 0"
    assert (first.program, first.dispatch, first.kernel, first.step) == ("fill", 0, "add_scaled", 0)
    assert (last.program, last.dispatch, last.kernel, last.step) == ("fill", 5, "summarize", 1)
    assert (first.symbol, last.symbol) == ("add_scaled_f32", "total_f32")
    assert first.values == VALUES


def test_hooks_read_what_each_launch_reads_and_writes_though_memory_is_shared(executable: Executable) -> None:
    weights, arrays = toy_weights(), {}

    def before(launch: SteppedLaunch) -> None:
        if launch.label.startswith("fill · bias"):
            np.testing.assert_array_equal(named(launch, "x").array(), X)
            np.testing.assert_array_equal(named(launch, "bias").array(), weights["bias"])

    def after(launch: SteppedLaunch) -> None:
        arrays.update({access.declared.name: access.array() for access in launch.accesses if access.declared.writes})

    executable.step("fill", VALUES, before=before, after=after)
    result = gained(X, weights)
    np.testing.assert_array_equal(arrays["biased"], X + weights["bias"])
    np.testing.assert_array_equal(arrays["gained"], result)
    np.testing.assert_array_equal(arrays["part"], result.sum(1))
    np.testing.assert_array_equal(arrays["calls"], [1])
    np.testing.assert_array_equal(arrays["pool"].view(np.float32).reshape(-1, COLUMNS)[2:5], result)
    assert arrays["pool"].nbytes == executable.memory_plan.sizes.states["pool"]


def test_each_access_has_its_direction(executable: Executable) -> None:
    seen: dict[str, set[tuple[str, str, bool, bool]]] = {}

    def before(launch: SteppedLaunch) -> None:
        seen[launch.symbol] = {
            (each.declared.kind, each.declared.name, each.declared.reads, each.declared.writes)
            for each in launch.accesses
        }

    executable.step("fill", VALUES, before=before)
    assert seen["remember_f32"] == {("buffer", "gained", True, False), ("state", "pool", True, True)}
    assert seen["row_sums_f32"] == {("scratch", "part", False, True), ("buffer", "gained", True, False)}


def test_stepping_does_what_running_does(toy: Path) -> None:
    results = []
    for way in ("run", "step"):
        with kern.load(toy, capacity=CAPACITY) as executable:
            executable.write("x", X, {"rows": 3})
            for _ in range(2):
                getattr(executable, way)("fill", VALUES)
            getattr(executable, way)("recall", {"start": 5})
            results.append([executable.read(name).tobytes() for name in ("seen", "total", "kept", "count")])
    assert results[0] == results[1]


def overlap(one: MemoryAccess, other: MemoryAccess) -> bool:
    return one.address < other.address + other.size and other.address < one.address + one.size


@given(random_programs())
@settings(max_examples=15, deadline=None)
def test_a_launch_changes_nothing_that_it_only_reads(random: RandomProgram) -> None:
    kept: dict[int, bytes] = {}
    launches = 0

    def only_read(launch: SteppedLaunch) -> dict[int, bytes]:
        written = [access for access in launch.accesses if access.declared.writes]
        assert written
        return {
            access.declared.index: access.read()
            for access in launch.accesses
            if not any(overlap(access, each) for each in written)
        }

    def before(launch: SteppedLaunch) -> None:
        kept.clear()
        kept.update(only_read(launch))

    def after(launch: SteppedLaunch) -> None:
        nonlocal launches
        launches += 1
        assert only_read(launch) == kept

    values = {"rows": random.rows, "shift": 1}
    x = np.arange(random.rows * random.columns, dtype=np.uint32).reshape(-1, random.columns)
    with TemporaryDirectory() as directory:
        folder = write_artifact(Path(directory, "artifact"), random.manifest, {MODULE: toy_kernels()})
        with kern.load(folder) as stepped, kern.load(folder) as ran:
            stepped.write("x", x, values)
            stepped.step("main", values, before=before, after=after)
            ran.write("x", x, values)
            assert launches == len(ran.profile("main", values))
            assert stepped.read("result", values).tobytes() == ran.read("result", values).tobytes()


def test_an_access_from_an_offset_on_ends_with_the_array(tmp_path: Path) -> None:
    """A scratch of 16 bytes, of which the second launch takes the last 12; an output from its second value on."""
    b = ManifestBuilder("offsets")
    params = ("out buffer<u8>", "in buffer<u8>", "i32")
    part = ScratchArg(scratch="part", offset=4)
    steps = (
        step("copy_bytes", params, (ScratchArg(scratch="part"), Arg(arg=1), Arg(arg=2))),
        step("copy_bytes", params, (Arg(arg=0), part, Arg(arg=2))),
    )
    scratch = {"part": {"dtype": "u8", "shape": (16,)}}
    b.kernel("by_scratch", Kernel(params=params, impl=Impl(scratch=scratch, steps=steps)))  # type: ignore[arg-type]
    x, y = b.input("x", "u8", (8,)), b.output("y", "u8", (10,))
    b.program("main").dispatch("by_scratch", y.at(2), x, 8)
    accesses: list[MemoryAccess] = []
    with kern.load(write_artifact(tmp_path / "offsets", b.build(), {MODULE: toy_kernels()})) as executable:
        executable.write("x", np.arange(8, dtype=np.uint8))
        executable.step("main", {}, after=lambda launch: accesses.extend(launch.accesses))
        first, _, out, rest = accesses
        assert (first.size, rest.size, out.size) == (16, 12, 8)
        assert rest.address == first.address + 4
        np.testing.assert_array_equal(executable.read("y"), [0, 0, 4, 5, 6, 7, 0, 0, 0, 0])


def test_the_operands_of_a_built_in_operator_have_their_exact_extent(tmp_path: Path) -> None:
    operator = "extern:cublaslt_bf16_tn_f32"
    params = ("out buffer<f32>", "in buffer<bf16>", "in buffer<bf16>", "i32", "i32", "i32")
    args = tuple(Arg(arg=index) for index in range(6))
    launch = step(operator, params, args).model_copy(update={"cubin": None})
    b = ManifestBuilder("product")
    rows = b.symbol("rows", max=4)
    b.kernel("product", Kernel(params=params, impl=Impl(steps=(launch,))))
    x, w = b.input("x", "bf16", (rows, 8)), b.input("w", "bf16", (5, 8))
    y = b.output("y", "f32", (Mul(mul=(rows, 2)), 5))
    b.program("main").dispatch("product", y, x, w, rows, 3, 8)
    sizes: dict[str, tuple[int, tuple[int, ...]]] = {}
    with kern.load(write_artifact(tmp_path / "product", b.build(), {})) as executable:
        executable.write("x", np.ones((2, 8), ml_dtypes.bfloat16), {"rows": 2})
        executable.write("w", np.ones((5, 8), ml_dtypes.bfloat16))

        def after(launch: SteppedLaunch) -> None:
            assert launch.symbol == operator
            sizes.update({each.declared.name: (each.size, each.array().shape) for each in launch.accesses})
            np.testing.assert_array_equal(named(launch, "y").array(), [8] * 6)

        executable.step("main", {"rows": 2}, after=after)
    assert sizes == {"y": (24, (6,)), "x": (32, (2, 8)), "w": (48, (24,))}


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_error_of_a_hook_ends_the_program_at_that_launch(executable: Executable, when: str) -> None:
    class Stop(Exception):
        pass

    def stop(launch: SteppedLaunch) -> None:
        if launch.kernel == "accumulate":
            raise Stop(launch.label)

    with pytest.raises(Stop, match="fill · dispatch 3 · accumulate · step 0"):
        executable.step("fill", VALUES, **{when: stop})  # type: ignore[arg-type]
    ran = gained(X, toy_weights()).sum(0) if when == "after" else np.zeros(COLUMNS)
    np.testing.assert_array_equal(executable.read("total"), ran)
    assert executable.read("count") == 0
    executable.run("fill", VALUES)
    assert executable.read("count") == 1


def test_a_hook_may_use_the_executable(executable: Executable) -> None:
    def before(launch: SteppedLaunch) -> None:
        if launch.dispatch == 0:
            executable.write("x", 2 * X, {"rows": 3})

    executable.step("fill", VALUES, before=before)
    np.testing.assert_array_equal(executable.read("seen", {"rows": 3}), gained(2 * X, toy_weights()))


def test_a_hook_that_closes_the_executable_ends_the_program(executable: Executable) -> None:
    launches: list[SteppedLaunch] = []

    def close(launch: SteppedLaunch) -> None:
        launches.append(launch)
        executable.close()

    with pytest.raises(Closed):
        executable.step("fill", VALUES, before=close)
    (launch,) = launches
    with pytest.raises(Closed):
        launch.accesses[0].read()
    with pytest.raises(Closed):
        executable.step("fill", VALUES)


def test_a_hook_cannot_change_the_values_that_sizes_follow_from(executable: Executable) -> None:
    def grow(launch: SteppedLaunch) -> None:
        launch.values["rows"] = 10**6  # type: ignore[index]

    with pytest.raises(TypeError, match="does not support item assignment"):
        executable.step("fill", VALUES, before=grow)


@pytest.mark.parametrize(
    ("program", "values", "error"),
    [("none", VALUES, UnknownName), ("fill", {"rows": 99, "start": 0}, SymbolOutOfBounds)],
)
def test_a_call_that_is_refused_calls_no_hook(
    executable: Executable, program: str, values: dict[str, int], error: type[Exception]
) -> None:
    calls: list[Any] = []
    hook: Callable[[SteppedLaunch], None] = calls.append
    with pytest.raises(error):
        executable.step(program, values, before=hook, after=hook)
    assert calls == []
