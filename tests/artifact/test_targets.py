"""Which code runs where, and how much shared memory a block may have there."""

from __future__ import annotations

import pytest

from kern.artifact.errors import UnknownTarget
from kern.artifact.targets import parse, runs_on, shared_mem_limit

GPUS = ["sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121"]
HOSTS = ["x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4", "aarch64"]


def machines(module: str) -> list[str]:
    return [machine for machine in (*GPUS, *HOSTS) if runs_on(module, machine)]


@pytest.mark.parametrize(
    ("module", "where"),
    [
        ("sm_75", ["sm_75"]),
        ("sm_80", ["sm_80", "sm_86", "sm_89"]),
        ("sm_86", ["sm_86", "sm_89"]),
        ("sm_87", ["sm_87"]),
        ("sm_89", ["sm_89"]),
        ("sm_90", ["sm_90"]),
        ("sm_90a", ["sm_90"]),
        ("sm_100", ["sm_100", "sm_103"]),
        ("sm_100f", ["sm_100", "sm_103"]),
        ("sm_100a", ["sm_100"]),
        ("sm_103", ["sm_103"]),
        ("sm_120", ["sm_120", "sm_121"]),
        ("sm_120a", ["sm_120"]),
        ("x86-64-v1", ["x86-64-v1", "x86-64-v2", "x86-64-v3", "x86-64-v4"]),
        ("x86-64-v3", ["x86-64-v3", "x86-64-v4"]),
        ("aarch64", ["aarch64"]),
    ],
)
def test_where_code_runs(module: str, where: list[str]) -> None:
    assert machines(module) == where


def test_a_target_named_with_its_suffix_is_the_same_machine() -> None:
    assert runs_on("sm_90a", "sm_90a")
    assert runs_on("sm_90", "sm_90a")


@pytest.mark.parametrize(
    "name",
    ["", "sm", "sm_", "sm_9", "sm_090", "sm_90b", "sm_90 ", "SM_90", "sm_9000", "x86-64", "x86-64-v5", "host", "arm"],
)
def test_names_that_are_no_targets(name: str) -> None:
    for attempt in (lambda: parse(name), lambda: runs_on("sm_90", name), lambda: runs_on(name, "sm_90")):
        with pytest.raises(UnknownTarget, match="is not a target") as refusal:
            attempt()
        assert refusal.value.exit_code == 2


@pytest.mark.parametrize(
    ("target", "limit"),
    [
        ("sm_80", 163 * 1024),
        ("sm_86", 99 * 1024),
        ("sm_89", 99 * 1024),
        ("sm_90", 232448),
        ("sm_90a", 232448),
        ("sm_100", 232448),
        ("sm_120", 99 * 1024),
        ("sm_199", None),
        ("x86-64-v3", None),
        ("aarch64", None),
    ],
)
def test_shared_memory_of_a_block(target: str, limit: int | None) -> None:
    assert shared_mem_limit(target) == limit
