"""Loading an artifact folder: verified, resolved, planned, allocated, bound, checked against the device."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, Final

from kern.artifact.folder import ArtifactFolder, open_folder
from kern.artifact.resolve import Resolution
from kern.artifact.targets import runs_on
from kern.artifact.types import StepKey
from kern.device import DEVICE_OF_MODULES, open_device
from kern.device.base import ALIGNMENT, Device, DeviceError, FileRegion, Function, Module, OutOfMemory
from kern.manifest.params import layout
from kern.manifest.types import Manifest, Step
from kern.runtime.addresses import Bases
from kern.runtime.examination import examine
from kern.runtime.executable import Executable, Loaded
from kern.runtime.lowering import linkage
from kern.runtime.planner import Arena, MemoryPlan, plan
from kern.runtime.reports import InvalidArtifact
from kern.runtime.sizes import round_up

AUTO: Final = "auto"

Progress = Callable[[int, int], None]
"""Told the bytes of weights bound so far, and of all."""


class WrongTarget(DeviceError):
    """A kernel file is built for what the device does not run."""

    code: ClassVar[str] = "target"


class AbiMismatch(DeviceError):
    """The device's own answer about a function differs from what the manifest declares."""

    code: ClassVar[str] = "abi"


def load(
    path: str | Path,
    *,
    device: str = "auto",
    capacity: int = 4096,
    sequences: int = 1,
    sharing: bool = True,
    weights: str | Path | None = None,
    check: bool = False,
    progress: Progress | None = None,
) -> Executable:
    """Load the artifact folder at `path` onto a device.

    `device` is `host`, `cuda`, `cuda:N`, or `auto` for the one that the kernels were built for. `capacity`
    counts tokens a sequence and, with `sequences`, sizes the states (see `kern.runtime.sizes.sizes`). With
    `sharing` off every buffer has bytes of its own and can be read. `weights` takes the place of the folder's
    weights file. With `check`, every launch is waited for, and an error names the one that failed. `progress`
    is told the bytes of weights bound, and of all.

    Raises InvalidArtifact, an ArtifactError, DeviceUnavailable, WrongTarget, OutOfMemory, BadCapacity,
    ModuleError or AbiMismatch; whatever was taken by then has been given back.
    """
    with ExitStack() as resources, open_folder(path) as folder:
        override = None if weights is None else Path(weights)
        found = examine(folder, weights=override)
        if found.verified is None or found.resolution is None:
            raise InvalidArtifact(found.report)
        planned = plan(found.verified, capacity=capacity, sequences=sequences, sharing=sharing)
        target = _open_device(device, found.resolution, resources)
        bases = _memory(target, planned, found.verified.manifest, folder, override, progress, resources)
        functions = _functions(target, found.verified.manifest, found.resolution, resources)
        stream = target.stream()
        resources.callback(stream.close)
        loaded = Loaded(
            path=folder.path,
            verified=found.verified,
            resolution=found.resolution,
            device=target,
            stream=stream,
            plan=planned,
            bases=bases,
            linkage=linkage(found.verified.manifest, functions, target.operator),
            capacity=capacity,
            sequences=sequences,
        )
        return Executable(loaded, resources.pop_all(), check=check)


def _open_device(name: str, resolution: Resolution, resources: ExitStack) -> Device:
    """The device asked for; `auto` is the one that runs the kind of the modules, the host if there are none."""
    device = open_device(DEVICE_OF_MODULES[resolution.kind or "host"] if name == AUTO else name)
    resources.callback(device.close)
    for module in resolution.modules:
        if not runs_on(module.target, device.target):
            raise WrongTarget(
                f"kernels/{module.name} is built for {module.target}, device {device.name} runs {device.target}",
                f"build the artifact for {device.target}, or choose another device",
            )
    return device


def _memory(
    device: Device,
    planned: MemoryPlan,
    manifest: Manifest,
    folder: ArtifactFolder,
    weights: Path | None,
    progress: Progress | None,
    resources: ExitStack,
) -> Bases:
    _check_room(device, planned)
    states = _arena(device, planned.states, resources)
    io = _arena(device, planned.io, resources)
    workspace = _arena(device, Arena(planned.workspace.size, ALIGNMENT, {}), resources)
    return Bases(_bind_weights(device, manifest, folder, weights, progress, resources), states, io, workspace)


def _check_room(device: Device, planned: MemoryPlan) -> None:
    free = device.free_memory()
    weights = 0 if device.maps_files else planned.weights
    needed = planned.allocated + weights
    if needed > free:
        raise OutOfMemory(
            f"{needed:,} bytes are planned (weights {weights:,}, states {planned.states.allocation:,}, inputs and "
            f"outputs {planned.io.allocation:,}, workspace {planned.workspace.size:,}); device {device.name} has "
            f"{free:,} free",
            "load with a smaller capacity or fewer sequences, or free memory",
        )


def _arena(device: Device, arena: Arena[Any], resources: ExitStack) -> int:
    """The base of a new arena, zeroed."""
    if not arena.size:
        return 0
    memory = device.alloc(arena.allocation)
    resources.callback(memory.free)
    return round_up(memory.address, arena.alignment)


def _bind_weights(
    device: Device,
    manifest: Manifest,
    folder: ArtifactFolder,
    weights: Path | None,
    progress: Progress | None,
    resources: ExitStack,
) -> dict[str, int]:
    """Each weight's address. Names, dtypes and shapes were checked against the very file that is open."""
    names = [name for name, buffer in manifest.buffers.items() if buffer.class_ == "weight"]
    if not names:
        return {}
    file = folder.weights(weights)
    regions = [FileRegion(file.tensors[name].offset, file.tensors[name].size) for name in names]
    counter = _Counter(sum(region.size for region in regions), progress)
    placed = device.place(file.fileno(), regions, counter)
    resources.callback(placed.free)
    return dict(zip(names, placed.addresses, strict=True))


class _Counter:
    """Adds up a device's progress for a caller who wants the sum and the total."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def __call__(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(self._done, self._total)


def _functions(
    device: Device, manifest: Manifest, resolution: Resolution, resources: ExitStack
) -> dict[StepKey, Function]:
    """The function behind each step that is a launch; each module that some step needs is loaded once."""
    modules: dict[str, Module] = {}
    functions: dict[StepKey, Function] = {}
    for (kernel, index), resolved in resolution.steps.items():
        name = resolved.module.name
        if name not in modules:
            modules[name] = device.load_module(resolved.module.image)
            resources.callback(modules[name].unload)
        function = modules[name].function(resolved.kernel.symbol)
        _check_abi(function, manifest.kernels[kernel].impl.steps[index], f"kernel {kernel!r}, step {index}")
        functions[kernel, index] = function
    return functions


def _check_abi(function: Function, step: Step, where: str) -> None:
    declared = layout(step.params)
    if function.layout is not None and function.layout != declared:
        raise AbiMismatch(
            f"{where}: {function.symbol} takes parameters at {function.layout} (offset:size), "
            f"the manifest declares {declared}",
            "correct the step's params, or give the kernel file that they describe",
        )
    threads, most = math.prod(step.block), function.limits.max_threads
    if most is not None and threads > most:
        raise AbiMismatch(
            f"{where}: a block of {threads} threads, {function.symbol} runs at most {most} on this device",
            "give the step a smaller block",
        )
