"""Which module a launch is attributed to, by which source, and that nothing is guessed."""

from __future__ import annotations

import hashlib
from pathlib import Path

from support.recorded_program import Recorder


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_driver_says_which_module_runs(record: Recorder, cubins: Path) -> None:
    done = record(
        """
        first, second = images()
        for image in (first, second):
            program.launch(program.function(program.module(image), b"twin", (8, 4)), (word(DEVICE), word(3, 4)))
        """,
        cubins,
    )
    first, second = sha256(cubins / "first.cubin"), sha256(cubins / "second.cubin")
    assert [(kernel["module"], kernel["found"]) for kernel in done.of("kernel")] == [
        (first, "profiled"),
        (second, "profiled"),
    ]
    assert [kernel["symbol"] for kernel in done.of("kernel")] == ["twin", "twin"]
    assert [launch["kernel"] for launch in done.of("launch")] == [0, 1]
    assert "candidates" not in done.of("kernel")[0]


def test_a_captured_launch_is_attributed_to_the_module_of_its_handle(record: Recorder, cubins: Path) -> None:
    done = record(
        """
        first, second = images()
        program.capturing(STREAM, True)
        functions = [program.function(program.module(image), b"twin") for image in (first, second)]
        for function in functions:
            program.launch(function, stream=STREAM)
        """,
        cubins,
    )
    assert [kernel["found"] for kernel in done.of("kernel")] == ["handle", "handle"]
    assert [kernel["module"] for kernel in done.of("kernel")] == [
        sha256(cubins / "first.cubin"),
        sha256(cubins / "second.cubin"),
    ]
    assert all(launch["capturing"] for launch in done.of("launch"))


def test_a_launch_that_ran_ties_the_handle_of_its_module(record: Recorder, cubins: Path) -> None:
    done = record(
        """
        first, second = images()
        libraries = [program.library(image) for image in (first, second)]
        program.launch(program.kernel(libraries[1], b"twin"))
        program.launch(program.kernel(libraries[0], b"twin"))
        program.capturing(STREAM, True)
        program.launch(program.kernel(libraries[1], b"twin"), stream=STREAM)
        """,
        cubins,
    )
    assert [kernel["found"] for kernel in done.of("kernel")] == ["profiled", "profiled", "handle"]
    assert done.of("kernel")[2]["module"] == sha256(cubins / "second.cubin")


def test_a_module_loaded_inside_the_launch_is_its_own(record: Recorder, cubins: Path) -> None:
    done = record(
        """
        first, second = images()
        program.capturing(STREAM, True)
        program.launch(program.kernel(program.library(first), b"twin"), stream=STREAM)
        program.launch(program.kernel(program.library(second), b"twin"), stream=STREAM)
        """,
        cubins,
    )
    assert [(kernel["found"], kernel["module"]) for kernel in done.of("kernel")] == [
        ("loading", sha256(cubins / "first.cubin")),
        ("loading", sha256(cubins / "second.cubin")),
    ]


def test_two_modules_loaded_inside_the_launch_tell_nothing_but_their_symbols_do(record: Recorder, cubins: Path) -> None:
    program = """
        first, second = images()
        program.capturing(STREAM, True)
        kernel = program.kernel(program.library(first), sys.argv[2].encode())
        other = program.kernel(program.library(second), b"twin")
        program.call("fake_load_within_next_launch", program.module_of(other))
        program.launch(kernel, stream=STREAM)
    """
    alone = record(program, cubins, "alone").only("kernel")
    assert (alone["found"], alone["module"]) == ("symbol", sha256(cubins / "first.cubin"))
    twin = record(program, cubins, "twin").only("kernel")
    assert (twin["found"], twin["module"]) == (None, None)
    assert set(twin["candidates"]) == {sha256(cubins / name) for name in ("first.cubin", "second.cubin")}


def test_a_module_loaded_inside_the_launch_of_another_ones_kernel_is_not_its_own(
    record: Recorder, cubins: Path
) -> None:
    done = record(
        """
        first, second = images()
        kernel, other = program.kernel(program.library(first), b"alone"), program.kernel(program.library(second), b"x")
        program.call("fake_load", program.module_of(kernel))
        program.call("fake_load_within_next_launch", program.module_of(other))
        program.capturing(STREAM, True)
        program.launch(kernel, stream=STREAM)
        """,
        cubins,
    )
    kernel = done.only("kernel")
    assert (kernel["found"], kernel["module"]) == ("symbol", sha256(cubins / "first.cubin"))


def test_two_modules_of_the_same_bytes_are_one_answer(record: Recorder, cubins: Path) -> None:
    done = record(
        """
        kernels = [program.kernel(program.library(images()[0]), b"twin") for _ in range(2)]
        for kernel in kernels:
            program.call("fake_load", program.module_of(kernel))
        program.capturing(STREAM, True)
        for kernel in kernels:
            program.launch(kernel, stream=STREAM)
        """,
        cubins,
    )
    kernel = done.only("kernel")
    assert (kernel["found"], kernel["module"]) == ("symbol", sha256(cubins / "first.cubin"))


def test_a_module_loaded_for_one_node_of_a_graph_is_not_another_nodes(record: Recorder, cubins: Path) -> None:
    done = record(
        """
        kernels = [program.kernel(program.library(image), b"twin") for image in images()]
        program.call("fake_load", program.module_of(kernels[0]))
        graph, executable, params = Handle(), Handle(), program.pack(())
        program.call("cuGraphCreate", c.byref(graph), 0)
        for kernel in reversed(kernels):
            node = KernelNode(kernel, 1, 1, 1, 1, 1, 1, 0, c.addressof(params), None, None, None)
            program.call("fake_node", graph, 0, c.byref(node), None)
        program.call("cuGraphInstantiateWithFlags", c.byref(executable), graph, 0)
        """,
        cubins,
    )
    assert [(kernel["found"], kernel["module"]) for kernel in done.of("kernel")] == [
        ("loading", sha256(cubins / "second.cubin")),
        (None, None),
    ]


def test_a_symbol_of_one_module_ties_the_handle_for_its_others(record: Recorder, cubins: Path) -> None:
    done = record(
        """
        libraries = [program.library(image) for image in images()]
        for library in libraries:
            program.call("fake_load", program.module_of(program.kernel(library, b"twin")))
        program.capturing(STREAM, True)
        for name in (b"alone", b"twin"):
            program.launch(program.kernel(libraries[0], name), stream=STREAM)
        """,
        cubins,
    )
    first = sha256(cubins / "first.cubin")
    assert [(k["symbol"], k["found"], k["module"]) for k in done.of("kernel")] == [
        ("alone", "symbol", first),
        ("twin", "handle", first),
    ]


def test_a_module_that_cannot_be_read_may_hold_the_symbol(record: Recorder, cubins: Path) -> None:
    done = record(
        """
        libraries = [program.library(image) for image in images()]
        for library in libraries:
            program.call("fake_load", program.module_of(program.kernel(library, b"twin")))
        program.capturing(STREAM, True)
        os.remove(next(Path(os.environ["KERN_CAPTURE_DIR"]).glob(f"*/modules/{sys.argv[2]}.cubin")))
        program.launch(program.kernel(libraries[0], b"twin"), stream=STREAM)
        """,
        cubins,
        sha256(cubins / "first.cubin"),
    )
    kernel = done.only("kernel")
    assert (kernel["module"], kernel["found"], len(kernel["candidates"])) == (None, None, 2)


def test_a_symbol_that_no_module_holds_has_no_candidate(record: Recorder, cubins: Path) -> None:
    done = record(
        """
        first, second = images()
        program.capturing(STREAM, True)
        program.launch(program.function(program.module(first), b"twi"), stream=STREAM)
        """,
        cubins,
    )
    kernel = done.only("kernel")
    assert (kernel["module"], kernel["found"], kernel["candidates"]) == (None, None, [])


def test_without_the_word_of_cupti_the_handles_tell(record: Recorder, cubins: Path) -> None:
    done = record(
        'program.launch(program.function(program.module(images()[0]), b"twin"))', cubins, FAKE_NO_PROFILED="1"
    )
    assert done.only("kernel")["found"] == "handle"
    assert "module event 8" in done.log


def test_a_kernel_first_seen_in_a_capture_is_recorded_when_it_runs(record: Recorder, cubins: Path) -> None:
    done = record(
        """
        first, second = images()
        kernel = program.kernel(program.library(first), b"twin")
        other = program.kernel(program.library(second), b"twin")
        program.capturing(STREAM, True)
        program.call("fake_load_within_next_launch", program.module_of(other))
        for stream in (STREAM, STREAM, 0, 0, STREAM):
            program.launch(kernel, stream=stream)
        """,
        cubins,
    )
    assert [(kernel["found"], kernel["module"]) for kernel in done.of("kernel")] == [
        (None, None),
        ("profiled", sha256(cubins / "first.cubin")),
    ]
    assert [launch["kernel"] for launch in done.of("launch")] == [0, 0, 1, 1, 1]


def test_a_reused_handle_is_looked_up_again(record: Recorder, cubins: Path) -> None:
    done = record(
        """
        first, second = images()
        module = program.module(first)
        function = program.function(module, b"twin")
        program.launch(function)
        program.call("cuModuleUnload", module)
        program.call("fake_reuse", module, c.c_void_p(program.host_buffer(second)), len(second))
        program.capturing(STREAM, True)
        program.launch(function, stream=STREAM)
        program.launch(function)
        """,
        cubins,
    )
    first, second = sha256(cubins / "first.cubin"), sha256(cubins / "second.cubin")
    assert [(r["record"], r["module"]) for r in done.records if r["record"] in ("module", "unload", "kernel")] == [
        ("module", first),
        ("kernel", first),
        ("unload", first),
        ("module", second),
        ("kernel", second),
    ]
    assert [launch["kernel"] for launch in done.of("launch")] == [0, 1, 1]


def test_the_same_kernel_after_an_unload_keeps_its_number(record: Recorder, cubins: Path) -> None:
    done = record(
        """
        first, second = images()
        for _ in range(3):
            module = program.module(first)
            program.launch(program.function(module, b"twin"))
            program.call("cuModuleUnload", module)
        """,
        cubins,
    )
    assert done.only("kernel")["kernel"] == 0
    assert [launch["kernel"] for launch in done.of("launch")] == [0, 0, 0]


def test_each_module_is_kept_once_under_its_hash(record: Recorder, cubins: Path) -> None:
    done = record("for i in (0, 0, 1): program.module(images()[i])", cubins)
    modules = done.folder / "modules"
    assert {path.name for path in modules.iterdir()} == {f"{sha256(path)}.cubin" for path in cubins.iterdir()}
    assert all(path.stem == sha256(path) for path in modules.iterdir())
    assert [record["bytes"] for record in done.of("module")] == [
        (cubins / name).stat().st_size for name in ("first.cubin", "first.cubin", "second.cubin")
    ]
