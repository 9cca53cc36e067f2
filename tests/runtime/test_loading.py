"""Loading: what it reports, what it refuses, and that everything is freed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

import kern
import kern.runtime.loading
from kern.artifact import open_folder
from kern.artifact.errors import FolderUnreadable
from kern.device.base import Device, DeviceError, DeviceUnavailable, FunctionLimits, LaunchError, OutOfMemory
from kern.device.host.device import HostDevice, HostStream
from kern.device.host.target import host_target
from kern.manifest.builder import ManifestBuilder
from kern.manifest.errors import KernError
from kern.manifest.params import Layout
from kern.manifest.types import Arg, Impl, Kernel, Step
from kern.runtime.loading import AbiMismatch, WrongTarget
from kern.runtime.memory.sizes import BadCapacity
from kern.verification.report import InvalidArtifact
from support.artifacts import compiled, toy_kernels, write_artifact
from support.counting import CountingDevice
from support.toy import CAPACITY, COLUMNS, MODULE, single, toy_artifact, toy_manifest, toy_weights, two_steps


def use(monkeypatch: pytest.MonkeyPatch, device: CountingDevice) -> CountingDevice:
    monkeypatch.setattr(kern.runtime.loading, "open_device", lambda name, tune: device)
    return device


def test_close_frees_everything(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = use(monkeypatch, CountingDevice())
    executable = kern.load(toy, capacity=CAPACITY)
    assert sorted(device.taken) == ["device", "memory", "memory", "memory", "module", "regions"]
    executable.graph([("recall", {"start": 0})])
    executable.close()
    assert device.taken == []
    executable.close()


def test_an_error_in_its_context_frees_everything(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = use(monkeypatch, CountingDevice())
    with pytest.raises(KernError), kern.load(toy, capacity=CAPACITY) as executable:
        executable.run("recall", {"start": -1})
    assert device.taken == []


def test_close_frees_everything_even_if_the_last_launch_failed(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = use(monkeypatch, CountingDevice())

    def fail(stream: HostStream) -> None:
        raise LaunchError("the device is lost")

    monkeypatch.setattr(HostStream, "close", fail)
    executable = kern.load(toy, capacity=CAPACITY)
    executable.graph([("recall", {"start": 0})])
    with pytest.raises(LaunchError, match="lost"):
        executable.close()
    assert device.taken == []


@pytest.mark.parametrize("call", range(6))
def test_a_load_that_fails_at_any_point_frees_everything(toy: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    device = use(monkeypatch, CountingDevice(fails_at=call))
    with pytest.raises(DeviceError, match="told to fail"):
        kern.load(toy, capacity=CAPACITY)
    assert device.calls == call + 1
    assert device.taken == []


def test_an_interrupt_while_loading_frees_everything(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = use(monkeypatch, CountingDevice())

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kern.load(toy, capacity=CAPACITY, progress=interrupt)
    assert device.taken == []


def test_too_little_memory_is_reported_before_anything_is_allocated(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = use(monkeypatch, CountingDevice(free=2000))
    with pytest.raises(OutOfMemory, match=r"states 2,048.*2,000 free"):
        kern.load(toy, capacity=CAPACITY)
    assert device.calls == 0
    assert device.taken == []


def test_progress_counts_the_weights_bytes(toy: Path) -> None:
    reported: list[tuple[int, int]] = []
    with kern.load(toy, capacity=CAPACITY, progress=lambda done, total: reported.append((done, total))):
        pass
    assert [done for done, _ in reported] == sorted(done for done, _ in reported)
    assert reported[-1] == (2 * 4 * COLUMNS, 2 * 4 * COLUMNS)


def test_another_weights_file_replaces_the_folder_s(toy: Path, tmp_path: Path) -> None:
    other = toy_weights(seed=7)
    (tmp_path / "other.safetensors").write_bytes(save(other))
    with kern.load(toy, capacity=CAPACITY, sharing=False, weights=tmp_path / "other.safetensors") as executable:
        np.testing.assert_array_equal(executable.read("gain"), other["gain"])


def test_a_manifest_without_weights_or_states_needs_no_such_file(tmp_path: Path) -> None:
    b = ManifestBuilder("bare")
    rows = b.symbol("rows", max=4)
    b.kernel("sum", two_steps())
    x, total, count = b.input("x", "f32", (rows, 2)), b.output("y", "f32", (1,)), b.output("n", "i32", (1,))
    b.program("main").dispatch("sum", total, count, x, 2, rows)
    with kern.load(write_artifact(tmp_path / "bare", b.build(), {MODULE: toy_kernels()})) as executable:
        executable.write("x", np.ones((3, 2), np.float32), {"rows": 3})
        executable.run("main", {"rows": 3})
        assert executable.read("y") == 6


def test_a_state_starts_at_its_own_alignment(tmp_path: Path) -> None:
    b = ManifestBuilder("aligned")
    pools = [b.state(f"pool{index}", bytes_per_token=4, align=1 << 16) for index in range(2)]
    where = b.output("where", "i64", (2,))
    body = "*KERN_ARG(int64_t *, 0) = (int64_t)KERN_ARG(void *, 1);"
    source = f'#include "kern_host.h"\nKERN_KERNEL(address, "ptr,ptr") {{ {body} }}'
    b.kernel("address", single("address", ("out buffer<i64>", "inout ptr")))
    program = b.program("main")
    program.dispatch("address", where, pools[0])
    program.dispatch("address", where.model_copy(update={"offset": 8}), pools[1])
    with kern.load(write_artifact(tmp_path / "aligned", b.build(), {MODULE: compiled(source)})) as executable:
        executable.run("main", {})
        first, second = executable.read("where")
        assert first % (1 << 16) == 0
        assert second == first + (1 << 16)


def edited(folder: Path, edit: Any) -> Path:
    """The folder with its manifest's document changed in place."""
    path = folder / "manifest.json"
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))
    return folder


def test_every_error_of_the_manifest_and_of_the_files_is_in_one_report(tmp_path: Path) -> None:
    folder = toy_artifact(tmp_path / "invalid")
    (folder / "weights.safetensors").unlink()
    edited(folder, lambda document: document["symbols"].update(unused={"max": 2}))
    with pytest.raises(InvalidArtifact) as caught:
        kern.load(folder)
    codes = [located.diagnostic.code for located in caught.value.report.diagnostics]
    assert any(code.startswith("K09") for code in codes)
    assert any(code.startswith("K10") for code in codes)
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", ["module", "weights", "manifest"])
def test_a_damaged_folder_does_not_load(tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = toy_artifact(tmp_path / "damaged")
    path = {
        "module": folder / "kernels" / MODULE,
        "weights": folder / "weights.safetensors",
        "manifest": folder / "manifest.json",
    }[damage]
    path.write_bytes(path.read_bytes()[:-5])
    device = use(monkeypatch, CountingDevice())
    with pytest.raises(InvalidArtifact):
        kern.load(folder)
    assert device.calls == 0


def test_a_weight_of_another_dtype_does_not_load(tmp_path: Path) -> None:
    weights = {name: array.astype(np.float16) for name, array in toy_weights().items()}
    with pytest.raises(InvalidArtifact, match=r"f32.*F16"):
        kern.load(toy_artifact(tmp_path / "retyped", weights))  # type: ignore[arg-type]


def test_a_missing_folder_or_manifest_is_a_one_line_error(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(KernError) as caught:
            kern.load(path)
        assert caught.value.exit_code == 2
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("device", ["tpu", "cuda3", "hosts", ""])
def test_unknown_devices_are_refused(toy: Path, device: str) -> None:
    with pytest.raises(DeviceUnavailable, match=f"^unknown device '{device}'"):
        kern.load(toy, device=device)


def no_gpu(name: str, *, tune: bool = False) -> Device:
    """The devices of a machine without a GPU."""
    if name != "host":
        raise DeviceUnavailable(f"there is no GPU {name}", "use a folder that is built for the host")
    return HostDevice()


@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_a_device_of_another_kind_is_refused_before_it_is_opened(toy: Path, device: str) -> None:
    with pytest.raises(
        WrongTarget, match=rf"built for {host_target()}, and the device {device} does not run"
    ) as caught:
        kern.load(toy, device=device)
    assert caught.value.help.startswith("choose the device host")


def test_a_device_that_is_missing_is_refused_with_what_the_folder_is_built_for(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = host_target()
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(DeviceUnavailable, match=rf"built for {target}: the host device does not run on"):
        kern.load(toy)


@pytest.mark.parametrize(("device", "error"), [("auto", DeviceUnavailable), ("host", WrongTarget)])
def test_a_folder_for_a_gpu_says_so_on_a_machine_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, error: type[DeviceError]
) -> None:
    nvrtc = pytest.importorskip("support.nvrtc", reason="cuda-bindings is not installed")
    b = ManifestBuilder("gpu")
    step = Step(
        symbol="k", params=("out buffer<f32>",), block=(1, 1, 1), grid=(1, 1, 1), cubin="k.cubin", args=(Arg(arg=0),)
    )
    y = b.output("y", "f32", (1,))
    b.program("main").dispatch(b.kernel("k", Kernel(params=("out buffer<f32>",), impl=Impl(steps=(step,)))), y)
    image = nvrtc.cubin('extern "C" __global__ void k(float *y) { *y = 1; }', "sm_90a")
    folder = write_artifact(tmp_path / "gpu", b.build(), {"k.cubin": image})
    monkeypatch.setattr(kern.runtime.loading, "open_device", no_gpu)
    with pytest.raises(error, match=r"^this folder is built for sm_90a(:|, and the device host does not)") as caught:
        kern.load(folder, device=device)
    assert "host" in caught.value.help


def test_a_device_that_runs_other_code_is_refused(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = use(monkeypatch, CountingDevice())
    device.target = "sm_90"
    with pytest.raises(WrongTarget, match=rf"{MODULE}.*host runs sm_90"):
        kern.load(toy)
    assert device.taken == []


@pytest.mark.parametrize("wrong", [{"capacity": 0}, {"sequences": -1}])
def test_a_capacity_below_one_is_refused(toy: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(BadCapacity):
        kern.load(toy, **wrong)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Answering:
    """A function with the given reports of a device."""

    symbol: str
    layout: Layout | None = None
    limits: FunctionLimits = FunctionLimits()  # noqa: RUF009


class AnsweringModule:
    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def function(self, symbol: str) -> Answering:
        return Answering(symbol, **self._answers)

    def unload(self) -> None:
        pass


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"layout": Layout((0,), (4,))}, r"kernel 'add_scaled', step 0.*0:4.*declares 0:8"),
        ({"limits": FunctionLimits(max_threads=0)}, r"the block has 1 thread;.*at most 0"),
    ],
)
def test_what_the_device_reports_must_agree_with_the_manifest(
    toy: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], message: str
) -> None:
    device = use(monkeypatch, CountingDevice())
    monkeypatch.setattr(device, "load_module", lambda image: AnsweringModule(**answers))
    with pytest.raises(AbiMismatch, match=message):
        kern.load(toy, capacity=CAPACITY)
    assert device.taken == []


def test_only_modules_that_some_step_needs_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = compiled('#include "kern_host.h"\nKERN_KERNEL(idle, "ptr") {}')
    folder = write_artifact(tmp_path / "two", toy_manifest(), {MODULE: toy_kernels(), "other.so": other}, toy_weights())
    device = use(monkeypatch, CountingDevice())
    with kern.load(folder, capacity=CAPACITY):
        assert device.taken.count("module") == 1


def test_a_loaded_executable_no_longer_needs_its_folder(tmp_path: Path) -> None:
    folder = toy_artifact(tmp_path / "gone")
    with kern.load(folder, capacity=CAPACITY) as executable:
        shutil.rmtree(folder)
        executable.write("x", np.ones((1, COLUMNS), np.float32), {"rows": 1})
        executable.run("step", {"rows": 1, "start": 0})
        weights = toy_weights()
        np.testing.assert_array_equal(executable.read("total"), 1 + weights["bias"] + weights["gain"] / 2)


def test_an_open_folder_is_loaded_even_if_another_is_at_its_path_and_stays_open(tmp_path: Path) -> None:
    first = toy_artifact(tmp_path / "folder", toy_weights(seed=1))
    with open_folder(first) as folder:
        first.rename(tmp_path / "moved")
        toy_artifact(tmp_path / "folder", toy_weights(seed=2))
        with kern.load(folder, capacity=CAPACITY, sharing=False) as executable:
            assert executable.path == first
            np.testing.assert_array_equal(executable.read("gain"), toy_weights(seed=1)["gain"])
        assert folder.manifest_bytes()


def test_a_closed_folder_is_refused(toy: Path) -> None:
    with open_folder(toy) as folder:
        pass
    with pytest.raises(FolderUnreadable, match="was closed; open it again"):
        kern.load(folder, capacity=CAPACITY)


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = "import kern, sys; print([m for m in ('numpy', 'pydantic', 'ml_dtypes') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'unload'"):
        kern.unload  # noqa: B018
