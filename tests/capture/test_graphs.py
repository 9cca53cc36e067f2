"""Executable graphs: their nodes when they are made or updated, and their launches."""

from __future__ import annotations

from support.recorded_program import Recorder

DEVICE = 0x7100_0000_0000
GRAPH = """
function = program.function(program.module(b"\\0k\\0"), b"k", (8, 4))

def graph():
    made = Handle()
    program.call("cuGraphCreate", c.byref(made), 0)
    return made

def add_kernel(graph, value, kernel=None):
    params = program.pack((word(DEVICE + value), word(value, 4)))
    node = KernelNode(kernel or function, 1, 2, 3, 4, 5, 6, 7, c.addressof(params), None, None, None)
    program.call("fake_node", graph, 0, c.byref(node), None)

def add(graph, kind, child=None):
    program.call("fake_node", graph, kind, None, child)

def instantiate(graph):
    made = Handle()
    program.call("cuGraphInstantiateWithFlags", c.byref(made), graph, 0)
    return made

def launch(executable):
    program.call("cuGraphLaunch", executable, c.c_void_p(STREAM))
"""


def test_nodes_are_recorded_in_order_those_of_child_graphs_in_place(record: Recorder) -> None:
    done = record(
        GRAPH
        + """
outer, inner = graph(), graph()
add_kernel(outer, 1)
add(outer, 4, inner)
add(outer, 99)
for kind in (1, 2, 3, 5): add(inner, kind)
add_kernel(inner, 2)
instantiate(outer)"""
    )
    nodes = done.only("graph")["nodes"]
    assert [node.get("type", "k") for node in nodes] == ["k", "memcpy", "memset", "host", "empty", "k", "other"]
    assert nodes[0] == {
        "kernel": 0,
        "grid": [1, 2, 3],
        "block": [4, 5, 6],
        "shared": 7,
        "attributes": {"cluster": [2, 1, 1]},
        "via": "params",
        "params": [(DEVICE + 1).to_bytes(8, "little").hex(), "01000000"],
        "pointers": [{"param": 0, "at": 0, "memory": "device", "range": [DEVICE, 1 << 20]}],
    }
    assert done.only("kernel")["found"] == "handle"
    assert "truncated" not in done.only("graph")


def test_a_kernel_node_names_its_kernel_either_way(record: Recorder) -> None:
    done = record(
        GRAPH
        + """
made = graph()
params = program.pack(())
node = KernelNode(None, 1, 1, 1, 1, 1, 1, 0, c.addressof(params), None, None, None)
node.kernel = program.kernel(program.library(b"\\0other\\0"), b"other")
program.call("fake_node", made, 0, c.byref(node), None)
instantiate(made)"""
    )
    kernel, (_, loaded) = done.only("kernel"), done.of("module")
    assert (kernel["symbol"], kernel["found"], kernel["module"]) == ("other", "loading", loaded["module"])


def test_graphs_are_numbered_and_an_update_keeps_the_number(record: Recorder) -> None:
    done = record(
        GRAPH
        + """
first, second = graph(), graph()
add_kernel(first, 1)
executables = [instantiate(first), instantiate(second)]
launch(executables[0])
launch(executables[1])
add_kernel(first, 2)
program.call("cuGraphExecUpdate_v2", executables[0], first, None)
launch(executables[0])"""
    )
    assert [(r["record"], r["graph"], len(r.get("nodes", ()))) for r in done.records if "graph" in r] == [
        ("graph", 0, 1),
        ("graph", 1, 0),
        ("graph_launch", 0, 0),
        ("graph_launch", 1, 0),
        ("graph", 0, 2),
        ("graph_launch", 0, 0),
    ]
    assert {launch["stream"] for launch in done.of("graph_launch")} == {132}


def test_changes_of_single_nodes_are_said_to_be_lost_once(record: Recorder) -> None:
    done = record(
        GRAPH
        + """
executable = instantiate(graph())
for _ in range(3):
    program.call("cuGraphExecKernelNodeSetParams_v2", executable, None, None)
program.call("cuGraphExecDestroy", executable)"""
    )
    assert "single nodes" in done.only("lost")["what"]


def test_a_graph_made_out_of_sight_is_said_to_be(record: Recorder) -> None:
    done = record(
        GRAPH
        + """
executable = instantiate(graph())
program.call("cuGraphExecDestroy", executable)
launch(executable)
launch(executable)"""
    )
    assert done.only("lost")["what"] == "the nodes of a graph"
    assert [launch["graph"] for launch in done.of("graph_launch")] == [1, 1]


def test_a_node_that_is_switched_off_is_a_change(record: Recorder) -> None:
    done = record(GRAPH + 'program.call("cuGraphNodeSetEnabled", instantiate(graph()), None, 0)')
    assert "single nodes" in done.only("lost")["what"]


def test_a_handle_that_is_reused_while_it_ends_is_another_graph(record: Recorder) -> None:
    done = record(
        GRAPH
        + """
executable, other = instantiate(graph()), graph()
add_kernel(other, 1)
program.call("fake_instantiate_within_destroy", other)
program.call("cuGraphExecDestroy", executable)
launch(executable)"""
    )
    assert [len(graph["nodes"]) for graph in done.of("graph")] == [0, 1]
    assert done.only("graph_launch")["graph"] == 1
    assert not done.of("lost")


def test_a_kernel_node_with_a_packed_buffer(record: Recorder) -> None:
    done = record(
        GRAPH
        + """
made = graph()
packed = word(DEVICE) + word(5, 4)
extra = program.extra(program.host_buffer(packed), len(packed))
node = KernelNode(function, 1, 1, 1, 1, 1, 1, 0, None, c.addressof(extra), None, None)
program.call("fake_node", made, 0, c.byref(node), None)
instantiate(made)"""
    )
    (node,) = done.only("graph")["nodes"]
    assert (node["via"], node["params"]) == ("extra", [DEVICE.to_bytes(8, "little").hex(), "05000000"])
