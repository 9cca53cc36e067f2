"""The survey of parameter layouts: what a manifest could launch, and why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kern.mining import read_recording
from kern.mining.abi import KernelAbi, survey
from support.recordings import Recorder, packed

ADDRESS = 0x7F0000000100
DEVICE = {"memory": "device", "range": [0x7F0000000000, 4096]}


def tensor_map(rank: int = 2, pitch: int = 320, row: int = 2560) -> bytes:
    """How a tensor map of bf16 rows looks."""
    words = (0x46002 | rank << 4, pitch)
    head = packed(ADDRESS, 8) + b"".join(packed(word, 4) for word in words)
    return (head.ljust(32, b"\0") + packed(row - 1, 4)).ljust(128, b"\0")


def surveyed(dump: Path, sizes: list[int] | None, params: list[bytes] | None, **values: Any) -> KernelAbi:
    recorder = Recorder(dump)
    module = recorder.module(b"image") if values.pop("known", True) else None
    kernel = recorder.kernel("work", module, sizes)
    recorder.launch(kernel, params, values.pop("pointers", ()), **values)
    (abi,) = survey(read_recording(recorder.end()).launches)
    return abi


def at(param: int, place: int = 0, **values: Any) -> dict[str, Any]:
    return {"param": param, "at": place, **DEVICE, **values}


def test_pointers_and_scalars_are_flat(tmp_path: Path) -> None:
    params = [packed(ADDRESS, 8), packed(7, 4), packed(1, 1)]
    abi = surveyed(tmp_path, [8, 4, 1], params, pointers=[at(0)], attributes={"cluster": [2, 1, 1]})
    assert (abi.traits, abi.replayable, abi.launches, abi.sizes) == (("flat",), True, 1, (8, 4, 1))


@pytest.mark.parametrize(
    ("sizes", "params", "values", "traits", "reason"),
    [
        ([24], [packed(ADDRESS, 8) + bytes(16)], {"pointers": [at(0)]}, ("packed struct",), "24-byte struct"),
        ([24], [bytes(24)], {"via": "extra"}, ("packed struct", "packed extra"), "24-byte struct"),
        ([8], [packed(ADDRESS, 8)], {"pointers": [at(0, memory="host")]}, ("host pointer",), "the host"),
        ([8], [packed(ADDRESS, 8)], {"pointers": [at(0, memory="pinned")]}, ("host pointer",), "the host"),
        (None, None, {}, ("unknown layout",), "parameters unknown"),
        ([2], [bytes(2)], {}, ("flat",), "2 bytes"),
        ([4], [bytes(4)], {"known": False}, ("flat",), "module unknown"),
        ([4], [bytes(4)], {"attributes": {"cluster": [4, 4, 1]}}, ("flat",), "clusters"),
        ([4], [bytes(4)], {"attributes": {"other": {"9": "00"}}}, ("flat",), "other"),
    ],
)
def test_what_a_manifest_cannot_launch_says_why(
    tmp_path: Path,
    sizes: list[int] | None,
    params: list[bytes] | None,
    values: dict[str, Any],
    traits: tuple[str, ...],
    reason: str,
) -> None:
    abi = surveyed(tmp_path, sizes, params, **values)
    assert abi.traits == traits
    assert not abi.replayable
    assert any(reason in why for why in abi.reasons)


@pytest.mark.parametrize(
    ("image", "found"),
    [
        (tensor_map(), True),
        (tensor_map(rank=5), True),
        (tensor_map(rank=1, pitch=0), True),
        (tensor_map(rank=6), False),
        (tensor_map(pitch=100), False),
        (packed(ADDRESS, 8) + bytes(120), False),
    ],
)
def test_a_tensor_map_is_known_by_its_look(tmp_path: Path, image: bytes, found: bool) -> None:
    param = bytes(64) + image
    abi = surveyed(tmp_path, [len(param)], [param], pointers=[at(0, 64)])
    assert ("tensor map" in abi.traits) == found


def test_an_address_of_the_host_inside_a_struct_counts_for_nothing(tmp_path: Path) -> None:
    """What was never written may look like one."""
    abi = surveyed(tmp_path, [16], [packed(ADDRESS, 8) + bytes(8)], pointers=[at(0, memory="host")])
    assert abi.traits == ("packed struct",)


def test_the_most_launched_kernel_comes_first(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    module = recorder.module(b"image")
    for symbol in ("rare", "often", "often"):
        recorder.launch(recorder.kernel(symbol, module, (4,)), [bytes(4)])
    assert [(abi.kernel.symbol, abi.launches) for abi in survey(read_recording(recorder.end()).launches)] == [
        ("often", 2),
        ("rare", 1),
    ]
