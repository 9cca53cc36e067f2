"""The memory behind a plan: allocates the arenas on the device, and loads the weights."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from kern.artifact import WeightsFile
from kern.device.base import Device, FileRegion, OutOfMemory
from kern.manifest.arrays import ALIGNMENT, round_up
from kern.manifest.counts import number
from kern.manifest.types import Manifest
from kern.runtime.memory.address_table import Bases
from kern.runtime.memory.planner import Arena, MemoryPlan

Progress = Callable[[int, int], None]
"""Called with the bytes of weights loaded so far, and the total."""


def allocate(
    device: Device,
    planned: MemoryPlan,
    manifest: Manifest,
    weights: WeightsFile | None,
    progress: Progress | None,
    resources: ExitStack,
) -> Bases:
    """Allocate the arenas of a plan, zeroed, and load the weights of `manifest`; `resources` releases them.

    `weights` is the file whose tensors were checked against the manifest, None where it has no weights.
    Raises OutOfMemory; where too little is free, before allocating anything.
    """
    _check_room(device, planned)
    states = _arena(device, planned.states, resources)
    io = _arena(device, planned.io, resources)
    workspace = _arena(device, Arena(planned.workspace.size, ALIGNMENT, {}), resources)
    addresses = {} if weights is None else _load_weights(device, manifest, weights, progress, resources)
    return Bases(addresses, states, io, workspace)


def _check_room(device: Device, planned: MemoryPlan) -> None:
    free = device.free_memory()
    weights = 0 if device.maps_files else planned.weights
    needed = planned.allocated + weights
    if needed > free:
        raise OutOfMemory(
            f"{number(needed)} bytes are planned (weights {number(weights)}, states "
            f"{number(planned.states.allocation)}, inputs and outputs {number(planned.io.allocation)}, workspace "
            f"{number(planned.workspace.size)}); device {device.name} has {number(free)} free",
            "load with a smaller capacity, fewer sequences or fewer pool_tokens, or free memory",
        )


def _arena(device: Device, arena: Arena[Any], resources: ExitStack) -> int:
    """The base of a new arena."""
    if not arena.size:
        return 0
    memory = device.alloc(arena.allocation)
    resources.callback(memory.free)
    return round_up(memory.address, arena.alignment)


def _load_weights(
    device: Device, manifest: Manifest, file: WeightsFile, progress: Progress | None, resources: ExitStack
) -> dict[str, int]:
    """Each weight's address."""
    names = [name for name, buffer in manifest.buffers.items() if buffer.class_ == "weight"]
    regions = [FileRegion(file.tensors[name].offset, file.tensors[name].size) for name in names]
    loaded = device.load_regions(file.fileno(), regions, _Counter(sum(region.size for region in regions), progress))
    resources.callback(loaded.free)
    return dict(zip(names, loaded.addresses, strict=True))


class _Counter:
    """Adds up a device's progress, and reports the sum and the total."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def __call__(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(self._done, self._total)
