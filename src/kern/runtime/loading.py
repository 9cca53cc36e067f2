"""Loads an artifact folder: verify, resolve, plan, allocate, bind, check against the device."""

from __future__ import annotations

import math
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Final

from kern.artifact.folder import ArtifactFolder, open_folder
from kern.artifact.resolve import Resolution
from kern.artifact.targets import runs_on
from kern.artifact.types import StepKey
from kern.device import DEVICE_OF_MODULES, open_device
from kern.device.base import Device, DeviceError, DeviceUnavailable, Function, Module
from kern.manifest.counts import counted
from kern.manifest.errors import variant
from kern.manifest.params import layout
from kern.manifest.types import Manifest, Step
from kern.runtime.executable import Executable
from kern.runtime.lowering import link
from kern.runtime.memory.allocation import Progress, allocate
from kern.runtime.memory.planner import plan
from kern.verification.report import InvalidArtifact
from kern.verification.verify_folder import verify_folder
from kern.verifier import VerifiedManifest

AUTO: Final = "auto"


WrongTarget = variant(DeviceError, "wrong-target", "A kernel file is built for a target that the device does not run.")
AbiMismatch = variant(DeviceError, "abi-mismatch", "The device reports another ABI for a function than the manifest.")


def load(
    path: str | Path | ArtifactFolder,
    *,
    device: str = "auto",
    capacity: int = 4096,
    sequences: int = 1,
    pool_tokens: int | None = None,
    sharing: bool = True,
    weights: str | Path | None = None,
    check: bool = False,
    tune: bool = False,
    progress: Progress | None = None,
) -> Executable:
    """Load the artifact folder at `path` onto a device; an open folder is read as it is, and stays open.

    `device` is `host`, `cuda`, `cuda:N`, or `auto` for the one that the kernels were built for. `capacity` is the most
    tokens of one sequence. A state with `bytes` has a block for each of `sequences`; a state with `bytes_per_token` has
    room for `pool_tokens` in total, by default for `capacity` tokens of each sequence (`kern.runtime.memory.sizes`).
    With `sharing` off, every buffer has its own memory and can be read. `weights` replaces the folder's weights file.
    With `check`, every launch is waited for, and an error names the one that failed. With `tune`, the device chooses
    the algorithms of its built-in operators again instead of using cached ones. `progress` is called with the bytes of
    weights loaded so far, and the total.

    Raises InvalidArtifact, an ArtifactError, DeviceUnavailable, NoCacheFolder, WrongTarget, OutOfMemory, BadCapacity,
    BadPool, TooManyBlocks, ModuleError or AbiMismatch, after releasing everything that was allocated.
    """
    opened = nullcontext(path) if isinstance(path, ArtifactFolder) else open_folder(path)
    with ExitStack() as resources, opened as folder:
        override = None if weights is None else Path(weights)
        verified, resolution = _examined(folder, override)
        manifest = verified.manifest
        planned = plan(verified, capacity=capacity, sequences=sequences, pool_tokens=pool_tokens, sharing=sharing)
        target = _open_device(device, tune, resolution, resources)
        file = None if resolution.weights is None else folder.weights(override)
        bases = allocate(target, planned, manifest, file, progress, resources)
        linked = link(manifest, _functions(target, manifest, resolution, resources))
        stream = target.stream()
        resources.callback(stream.close)
        return Executable(
            folder.path, verified, resolution, planned, bases, linked, target, stream, resources.pop_all(),
            capacity=capacity, sequences=sequences, check=check,
        )  # fmt: skip


def _examined(folder: ArtifactFolder, weights: Path | None) -> tuple[VerifiedManifest, Resolution]:
    found = verify_folder(folder, weights=weights)
    if found.verified is None or found.resolution is None:
        raise InvalidArtifact(found.report, weights)
    return found.verified, found.resolution


def _open_device(name: str, tune: bool, resolution: Resolution, resources: ExitStack) -> Device:
    """The requested device; `auto` is the one that runs this kind of module, the host if there are none."""
    right = DEVICE_OF_MODULES[resolution.kind or "host"]
    chosen = right if name == AUTO else name
    of_its_kind = chosen.partition(":")[0] == right
    if resolution.modules and not of_its_kind and chosen.partition(":")[0] in DEVICE_OF_MODULES.values():
        raise WrongTarget(
            f"this folder is built for {_targets(resolution)}, and the device {name} does not run such kernels",
            f"choose the device {right}, or build the folder again for the device {name}",
        )
    try:
        device = open_device(chosen, tune=tune)
    except DeviceUnavailable as error:
        if not (resolution.modules and of_its_kind):
            raise
        raise DeviceUnavailable(
            f"this folder is built for {_targets(resolution)}: {error.message}", error.help
        ) from error
    resources.callback(device.close)
    for module in resolution.modules:
        if not runs_on(module.target, device.target):
            raise WrongTarget(
                f"kernels/{module.name} is built for {module.target}, and the device {device.name} runs "
                f"{device.target}",
                f"build the folder again with the target {device.target}, or choose another device",
            )
    return device


def _targets(resolution: Resolution) -> str:
    """What the modules are built for: `sm_90a`, or a list."""
    return ", ".join(sorted({module.target for module in resolution.modules}))


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
            "correct the step's params, or use the kernel file that they describe",
        )
    threads, most = math.prod(step.block), function.limits.max_threads
    if most is not None and threads > most:
        raise AbiMismatch(
            f"{where}: the block has {counted(threads, 'thread')}; {function.symbol} allows at most {most} here",
            "reduce the step's block",
        )
