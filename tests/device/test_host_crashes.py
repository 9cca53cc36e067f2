"""A launch that ends the process, by a signal or by exit(), is named on stderr, and the process does not succeed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Compile = Callable[..., bytes]

PROGRAM = """
import sys
from kern.manifest.launches import KernelLaunch
from kern.device.host.device import HostDevice
from kern.manifest.params import Layout
path, symbol, way = sys.argv[1:]
device = HostDevice(threads=2)
module = device.load_module(open(path, "rb").read())
one, nothing, stream = (1, 1, 1), Layout((), ()), device.stream()
launches = [KernelLaunch(label, module.function(name), one, one, 0, b"", nothing)
            for label, name in (("L0.norm", "fine"), ("L1.norm", symbol))]
prepared = device.prepare(launches)
print("before", end="")
if way == "graph":
    device.capture([prepared]).launch(stream)
elif way == "profile":
    device.profile(prepared, stream)
else:
    device.launch(prepared, stream)
print(" and after", end="")
"""
HEAD = """
#include <stdlib.h>
#include <signal.h>
#include <unistd.h>
#include <sys/mman.h>
"""
IN_THREADS = """
KERN_KERNEL(kernel, "") {
    (void)params;
    _Pragma("omp parallel for num_threads(launch->threads) schedule(static, 1)")
    for (int i = 0; i < 2; i++) if (i == 1) { %s; }
}
"""
ALONE = 'KERN_KERNEL(kernel, "") { (void)launch, (void)params; %s; }'
FINE = 'KERN_KERNEL(fine, "") { (void)launch, (void)params; }'
BEYOND_THE_FILE = (
    'int f = memfd_create("short", 0); char *p = mmap(0, 4096, PROT_READ, MAP_SHARED, f, 0); *(volatile char *)p'
)
# __builtin_trap() raises SIGILL on x86-64 and SIGTRAP on aarch64.
CRASHES = {
    "*(volatile int *)8 = 1": signal.SIGSEGV,
    BEYOND_THE_FILE: signal.SIGBUS,
    "raise(SIGFPE)": signal.SIGFPE,
    "raise(SIGILL)": signal.SIGILL,
    "raise(SIGTRAP)": signal.SIGTRAP,
    "abort()": signal.SIGABRT,
}


def run(folder: Path, image: bytes, way: str = "eager", symbol: str = "kernel") -> subprocess.CompletedProcess[str]:
    path = folder / "module.so"
    path.write_bytes(image)
    command = [sys.executable, "-c", PROGRAM, str(path), symbol, way]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("crash", CRASHES, ids=[number.name for number in CRASHES.values()])
def test_the_launch_that_crashes_in_a_thread_is_named(compile_c: Compile, tmp_path: Path, crash: str) -> None:
    ended = run(tmp_path, compile_c(HEAD + FINE + IN_THREADS % crash, "-fopenmp"))
    assert -ended.returncode == CRASHES[crash]
    assert "in L1.norm\n" in ended.stderr
    assert "L0.norm" not in ended.stderr


@pytest.mark.parametrize("way", ["eager", "graph", "profile"])
def test_a_crash_is_named_in_every_way_of_running(compile_c: Compile, tmp_path: Path, way: str) -> None:
    ended = run(tmp_path, compile_c(HEAD + FINE + ALONE % "*(volatile int *)8 = 1"), way)
    assert -ended.returncode == signal.SIGSEGV
    assert "in L1.norm\n" in ended.stderr


@pytest.mark.parametrize(("call", "body"), [("exit(0)", ALONE), ("exit(3)", IN_THREADS), ("quick_exit(0)", IN_THREADS)])
def test_a_kernel_that_exits_is_named_and_fails(compile_c: Compile, tmp_path: Path, call: str, body: str) -> None:
    ended = run(tmp_path, compile_c(HEAD + FINE + body % call, "-fopenmp"))
    assert ended.returncode == 1
    assert ended.stderr == "kern: error[launch-failed]: L1.norm ended the process by exit(): a kernel must return\n"
    assert ended.stdout == "before"


@pytest.mark.parametrize("way", ["constructor", "destructor"])
def test_a_constructor_that_exits_is_named_and_fails(compile_c: Compile, tmp_path: Path, way: str) -> None:
    leaving = f"__attribute__(({way})) static void leave(void) {{ exit(0); }}"
    path = tmp_path / "module.so"
    path.write_bytes(compile_c(HEAD + leaving + FINE))
    code = (
        "import sys\nfrom kern.device.host.device import HostDevice\n"
        "HostDevice(threads=1).load_module(open(sys.argv[1], 'rb').read()).unload()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 1
    assert (
        ended.stderr
        == f"kern: error[launch-failed]: a {way} of a host module ended the process by exit(): a kernel must return\n"
    )


@pytest.mark.parametrize("end", ["sys.exit(5)", "raise KeyboardInterrupt", "os._exit(6)", "os.fork()"])
def test_the_end_of_the_program_itself_is_not_reported(end: str) -> None:
    """Also of a program that embeds the interpreter, and calls exit() itself."""
    code = f"import os, sys\nfrom kern.device.host.device import HostDevice\nHostDevice(threads=1)\n{end}"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == {"sys.exit(5)": 5, "os._exit(6)": 6, "raise KeyboardInterrupt": -2}.get(end, 0)
    assert "exit()" not in ended.stderr


def test_exit_outside_of_any_launch_is_not_reported() -> None:
    code = (
        "import ctypes\nfrom kern.device.host.device import HostDevice\n"
        "HostDevice(threads=1)\nctypes.CDLL(None).exit(4)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (4, "")
