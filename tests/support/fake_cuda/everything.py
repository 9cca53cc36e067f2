"""A program that makes the recorder do all that it can do, for the sanitizers."""

import ctypes as c
import threading

from support.fake_driver import (
    DEVICE,
    HOST_MEMORY,
    STREAM,
    Copy2d,
    Handle,
    KernelNode,
    LaunchAttribute,
    LaunchConfig,
    Program,
    word,
)

program = Program()
module = program.module(b"\0k\0" + bytes(1000))
function = program.function(module, b"k", (8, 1, 24))
host = program.host_buffer(b"host" * 100)
program.allocation(host + 128, 16, HOST_MEMORY)
struct = word(DEVICE) + word(host) + word(0xDEAD_0000)
for address in (DEVICE, host, host + 140, 0xDEAD_0000, 2**63):
    program.launch(function, (word(address), b"\1", struct))
program.launch_raw(function, (c.c_void_p * 3)(0x1000, 0, 0xDEAD_0000), None)
for size in (40, 8, 0, 1 << 30):
    program.launch_raw(function, None, program.extra(program.host_buffer(bytes(40)), size))
program.launch(program.function(module, b"k"))
program.launch(program.kernel(program.library(b"\0k\0"), b"k", tuple([8] * 60)), [word(DEVICE + i) for i in range(60)])
program.capturing(STREAM, True)
program.launch(program.function(module, b"\xff" * 200), stream=STREAM)
program.capturing(STREAM, False)
program.call("cuMemcpyHtoD_v2", DEVICE, host, 256)
program.call("cuMemcpyAsync", DEVICE, 0xDEAD_0000, 16, c.c_void_p(STREAM))
program.call("cuMemsetD8Async", DEVICE, 1, 2, c.c_void_p(STREAM))
config = LaunchConfig(1, 1, 1, 1, 1, 1, 0, STREAM, 0, 3)
attributes = (LaunchAttribute * 3)(*(LaunchAttribute(id, 0, (1, 1, 1)) for id in (4, 6, 8)))
config.attributes = c.addressof(attributes)
program.call("cuLaunchKernelEx", c.byref(config), program.function(module, b"k"), program.pack(()), None)
copy = Copy2d(from_type=1, from_host=host, from_pitch=16, to_type=2, to_device=DEVICE, to_pitch=8, width=8, height=2)
program.call("cuMemcpy2DAsync_v2", c.byref(copy), c.c_void_p(STREAM))
program.call("cuMemcpy2DAsync_v2", c.c_void_p(0x1000), c.c_void_p(STREAM))
graph, child, executable = Handle(), Handle(), Handle()
for made in (graph, child):
    program.call("cuGraphCreate", c.byref(made), 0)
params = program.pack((word(DEVICE), b"\2", struct))
node = KernelNode(function, 1, 1, 1, 1, 1, 1, 0, c.addressof(params), None, None, None)
program.call("fake_node", child, 0, c.byref(node), None)
program.call("fake_node", graph, 4, None, child)
program.call("fake_node", graph, 99, None, None)
program.call("cuGraphInstantiateWithFlags", c.byref(executable), graph, 0)
program.call("cuGraphLaunch", executable, c.c_void_p(STREAM))
program.call("cuGraphExecDestroy", executable)


def work() -> None:
    for _ in range(20):
        own = program.module(word(threading.get_ident()) + b"\0k\0")
        program.launch(program.function(own, b"k", (8,)), (word(host),))
        program.call("cuModuleUnload", own)


threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
