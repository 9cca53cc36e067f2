"""What the host device reports about the machine: target, threads, limits, bandwidth; and opening devices by name."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from kern.device import DEVICE_OF_MODULES, open_device
from kern.device.base import DeviceUnavailable
from kern.device.host import limits
from kern.device.host.device import HostDevice
from kern.device.host.target import host_target, x86_64_level
from kern.device.host.threads import ThreadsError

V2 = "fpu sse sse2 cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"
V3 = V2 + " abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"
V4 = V3 + " avx512bw avx512cd avx512dq avx512f avx512vl"


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("fpu sse sse2", None),
        (V2, "x86-64-v2"),
        (V3, "x86-64-v3"),
        (V4, "x86-64-v4"),
        (V3.replace(" fma", ""), "x86-64-v2"),
        (V4.replace(" avx2", ""), "x86-64-v2"),
        (V4.replace(" avx512vl", ""), "x86-64-v3"),
    ],
)
def test_a_level_is_reached_only_with_all_its_flags(flags: str, level: str | None) -> None:
    assert x86_64_level(flags.split()) == level


def test_the_target_is_that_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_target() in ("x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert host_target() == "aarch64"
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(DeviceUnavailable, match="which is riscv64"):
        host_target()


def test_threads_are_as_requested_or_as_in_the_environment_or_one_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERN_THREADS", "7")
    assert (HostDevice(threads=3).threads, HostDevice().threads) == (3, 7)
    monkeypatch.setenv("KERN_THREADS", "")
    assert HostDevice().threads == limits.available_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", " 4", "1025", "9" * 5000, "²"])
def test_an_invalid_environment_variable_is_a_usage_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("KERN_THREADS", text)
    with pytest.raises(ThreadsError, match=r"KERN_THREADS='.*' is not a number of threads") as caught:
        HostDevice()
    assert caught.value.exit_code == 2


def test_zero_threads_are_refused() -> None:
    with pytest.raises(ThreadsError, match="threads=0"):
        HostDevice(threads=0)


@pytest.mark.parametrize(("line", "cores"), [("150000 100000", 2), ("100000 100000", 1), ("1000 100000", 1)])
def test_a_cpu_quota_is_rounded_up_to_cores(line: str, cores: int) -> None:
    assert limits.quota_cores(line) == cores


def test_the_tightest_control_group_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    inner, own = tmp_path / "outer/inner", tmp_path / "cgroup"
    inner.mkdir(parents=True)
    own.write_text("4:memory:/elsewhere\n0::/outer/inner\n")
    monkeypatch.setattr(limits, "CGROUP_ROOT", tmp_path)
    monkeypatch.setattr(limits, "OWN_CGROUP", own)
    (inner / "cpu.max").write_text("max 100000\n")
    (inner.parent / "cpu.max").write_text("100000 100000\n")
    assert limits.available_cores() == 1
    (inner / "memory.max").write_text("max\n")
    (inner.parent / "memory.max").write_text("1000000\n")
    (inner.parent / "memory.current").write_text("700000\n")
    (inner.parent / "memory.stat").write_text("anon 1\nactive_file 200000\ninactive_file 50000\n")
    assert limits.available_memory() == HostDevice(threads=1).free_memory() == 550000


def test_the_description_names_target_and_threads() -> None:
    one, two = HostDevice(threads=1), HostDevice(threads=2)
    assert one.description.endswith(f", {one.target}, 1 thread")
    assert two.description.endswith(f", {two.target}, 2 threads")


def test_bandwidth_is_measured_and_its_memory_freed(device: HostDevice) -> None:
    before = Path("/proc/self/statm").read_text().split()[0]
    first = device.read_bandwidth()
    after = Path("/proc/self/statm").read_text().split()[0]
    assert first > 0
    assert (int(after) - int(before)) * os.sysconf("SC_PAGESIZE") < 512 << 20


def test_opening_by_name() -> None:
    assert open_device("host").name == "host"
    assert DEVICE_OF_MODULES["host"] == "host"


@pytest.mark.parametrize("name", ["", "gpu", "cuda:", "cuda:x", "host:0", "HOST"])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(DeviceUnavailable, match=f"unknown device '{name}'; the devices are: host"):
        open_device(name)
