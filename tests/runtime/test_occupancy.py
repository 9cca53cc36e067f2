"""The occupancy of steps: where there is a device of their kind, and only there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kern.runtime.occupancy
from kern.artifact.folder import open_folder
from kern.artifact.types import StepKey
from kern.device import open_device
from kern.device.base import DeviceUnavailable, Occupancy
from kern.manifest.builder import ManifestBuilder
from kern.manifest.expressions import Mul
from kern.runtime.occupancy import occupancies
from kern.verification.verify_folder import verify_folder
from support.artifacts import write_artifact

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")

from support.nvrtc import cubin
from support.toy import single

SOURCE = """
extern "C" __global__ void plain(float *y) { *y = 1; }
extern "C" __global__ void large(float *y) { extern __shared__ float s[]; s[0] = 1; *y = s[0]; }
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder of two kernels for a target; the second has 1024 bytes of shared memory for each row."""

    def write(target: str) -> Path:
        b = ManifestBuilder("full")
        rows = b.symbol("rows", max=64)
        y = b.output("y", "f32", (rows,))
        for symbol, shared_mem in (("plain", 0), ("large", Mul(mul=(rows, 1024)))):
            kernel = single(symbol, ("out buffer<f32>",), shared_mem=shared_mem)
            step = kernel.impl.steps[0].model_copy(update={"cubin": "k.cubin", "block": (256, 1, 1)})
            impl = kernel.impl.model_copy(update={"steps": (step,)})
            b.kernel(symbol, kernel.model_copy(update={"impl": impl}))
            b.program(symbol).dispatch(symbol, y)
        folder = tmp_path_factory.mktemp("occupancy") / target
        return write_artifact(folder, b.build(), {"k.cubin": cubin(SOURCE, target)})

    return write


def found(folder: Path) -> dict[StepKey, Occupancy]:
    with open_folder(folder) as opened:
        found = verify_folder(opened)
        assert found.verified is not None, found.report
        assert found.resolution is not None
        return dict(occupancies(found.verified, found.resolution))


class Gpu:
    """A device that knows occupancy alone, and what is taken from it."""

    target = "sm_90"

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[int, int, int], int]] = []
        self.taken = ["device"]

    def load_module(self, image: bytes) -> Any:
        self.taken.append("module")
        return self

    def function(self, symbol: str) -> str:
        return symbol

    def occupancy(self, function: str, block: tuple[int, int, int], shared_mem: int) -> Occupancy:
        self.asked.append((function, block, shared_mem))
        return Occupancy(2, 0.25)

    def unload(self) -> None:
        self.taken.remove("module")

    def close(self) -> None:
        self.taken.remove("device")


def test_occupancy_is_at_the_most_shared_memory_of_each_step(
    build: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu()
    monkeypatch.setattr(kern.runtime.occupancy, "open_device", lambda name: gpu)
    assert found(build("sm_90")) == {("plain", 0): Occupancy(2, 0.25), ("large", 0): Occupancy(2, 0.25)}
    assert gpu.asked == [("plain", (256, 1, 1), 0), ("large", (256, 1, 1), 64 * 1024)]
    assert gpu.taken == []


def test_a_module_that_the_device_does_not_run_has_no_occupancy(
    build: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu()
    monkeypatch.setattr(kern.runtime.occupancy, "open_device", lambda name: gpu)
    assert found(build("sm_80")) == {}
    assert (gpu.asked, gpu.taken) == ([], [])


def test_there_is_no_occupancy_without_a_gpu_and_on_the_host(
    build: Callable[[str], Path], toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        assert name == "cuda"
        raise DeviceUnavailable("there is none")

    monkeypatch.setattr(kern.runtime.occupancy, "open_device", absent)
    assert found(build("sm_90")) == {}
    assert found(toy) == {}


@pytest.mark.gpu
def test_a_gpu_reports_its_occupancy(build: Callable[[str], Path]) -> None:
    try:
        device = open_device("cuda")
    except DeviceUnavailable as error:
        pytest.skip(f"no GPU: {error.message}")
    target = device.target
    device.close()
    filled = found(build(target))
    assert filled["plain", 0].share == 1.0
    assert 0 < filled["large", 0].share < 1
