"""How the steps of a manifest fill a device's multiprocessors."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from kern.artifact.resolve import Resolution
from kern.artifact.targets import runs_on
from kern.artifact.types import StepKey
from kern.device import DEVICE_OF_MODULES, open_device
from kern.device.base import DeviceUnavailable, Module, Occupancy
from kern.manifest.expressions import bounds
from kern.verifier import VerifiedManifest

Occupancies = Mapping[StepKey, Occupancy]


def occupancies(verified: VerifiedManifest, resolution: Resolution) -> Occupancies:
    """The occupancy of each step that launches a kernel, with shared memory at the upper bounds of the symbols.

    Steps are left out if this machine has no device for them or its device does not run their module. Host modules
    are not loaded, since loading runs code and a host has no occupancy. Raises ModuleError.
    """
    if resolution.kind != "cubin":
        return {}
    with ExitStack() as resources:
        try:
            device = open_device(DEVICE_OF_MODULES[resolution.kind])
        except DeviceUnavailable:
            return {}
        resources.callback(device.close)
        modules: dict[str, Module] = {}
        found: dict[StepKey, Occupancy] = {}
        for (kernel, index), resolved in resolution.steps.items():
            module = resolved.module
            if not runs_on(module.target, device.target):
                continue
            if module.name not in modules:
                modules[module.name] = device.load_module(module.image)
                resources.callback(modules[module.name].unload)
            step = verified.manifest.kernels[kernel].impl.steps[index]
            shared_mem = bounds(step.shared_mem, verified.ranges.kernels[kernel])[1]
            function = modules[module.name].function(resolved.kernel.symbol)
            occupancy = device.occupancy(function, step.block, shared_mem)
            if occupancy is not None:
                found[kernel, index] = occupancy
        return found
