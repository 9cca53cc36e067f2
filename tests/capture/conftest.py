"""A machine with a fake driver: libcuda and libcupti in C, the recorder compiled, and a way to record a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from kern.capture import recorder_library
from kern.toolchain.cuda_headers import find_toolkit
from support.nvrtc import cubin
from support.recorded_program import SUPPORT, Machine, Recorder, compile_c

LIBRARIES = {"libcuda.so.1": ("cuda.c", "queries.c", "transfers.c"), "libcupti.so.13": ("cupti.c",)}


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    folder = tmp_path_factory.mktemp("machine")
    for library, sources in LIBRARIES.items():
        compile_c(folder / library, [SUPPORT / "fake_cuda" / name for name in sources], f"-Wl,-soname,{library}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        return Machine(folder, recorder_library(find_toolkit(), ["cc", "-Werror"]))


@pytest.fixture
def record(machine: Machine, tmp_path: Path) -> Recorder:
    return Recorder(machine, tmp_path)


@pytest.fixture(scope="session")
def cubins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two modules that both hold the kernel `twin`, and one of which holds `alone`."""
    folder = tmp_path_factory.mktemp("cubins")
    first = 'extern "C" __global__ void twin(float *x, int n) { if (n) x[0] = n; }'
    alone = 'extern "C" __global__ void alone(float *x) { x[0] = 1; }'
    (folder / "first.cubin").write_bytes(cubin(first + alone, "sm_90a"))
    (folder / "second.cubin").write_bytes(cubin(first.replace("= n", "+= n"), "sm_90a"))
    return folder
