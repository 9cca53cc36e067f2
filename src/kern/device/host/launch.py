"""Launch lists in the host's form: calls of C functions with everything bound, run one after another."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kern.device.base import LaunchError
from kern.device.host.crashes import labelled
from kern.device.host.module import HostFunction
from kern.device.host.operators import bind
from kern.manifest.launches import KernelLaunch, Launch

Call = Callable[[], object]

_LAUNCH: Final = struct.Struct("=8I")
"""kern_launch of kern_host.h: grid, block, shared_mem, threads."""

_PARAMS_ALIGNMENT: Final = 16


@dataclass(frozen=True, slots=True)
class HostPrepared:
    """A launch list: the calls, and the label of each."""

    calls: tuple[Call, ...]
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.calls)


def prepare(launches: Sequence[Launch], threads: int) -> HostPrepared:
    """Bind every launch. Raises LaunchError for what the host cannot launch, DeviceError for an unknown operator."""
    calls = tuple(_bind(launch, threads) for launch in launches)
    return HostPrepared(calls, tuple(launch.label for launch in launches))


def run(calls: Sequence[Call]) -> None:
    """Make the calls in order. An interrupt is raised between two of them."""
    for call in calls:
        call()


def _bind(launch: Launch, threads: int) -> Call:
    if isinstance(launch, KernelLaunch):
        return _bind_kernel(launch, threads)
    return labelled(launch.label, bind(launch.name, launch.arguments))


def _bind_kernel(launch: KernelLaunch, threads: int) -> Call:
    """One block of memory holds kern_launch, the parameter values and the array of pointers to them.

    The call keeps it alive; `byref` objects are what ctypes passes on without converting.
    """
    function = _launchable(launch)
    values = -(-_LAUNCH.size // _PARAMS_ALIGNMENT) * _PARAMS_ALIGNMENT
    pointers = -(-(values + len(launch.params)) // 8) * 8
    count = len(launch.layout.offsets)
    block = ctypes.create_string_buffer(pointers + 8 * count + 1)
    _LAUNCH.pack_into(block, 0, *launch.grid, *launch.block, launch.shared_mem, threads)
    first = ctypes.addressof(block) + values
    ctypes.memmove(first, launch.params, len(launch.params))
    struct.pack_into(f"={count}Q", block, pointers, *(first + offset for offset in launch.layout.offsets))
    return labelled(launch.label, function.entry, ctypes.byref(block), ctypes.byref(block, pointers))


def _launchable(launch: KernelLaunch) -> HostFunction:
    if not isinstance(launch.function, HostFunction):
        raise LaunchError(
            f"{launch.label}: {launch.function.symbol!r} is not a function of the host device",
            "load its module on the device that launches it",
        )
    if not launch.function.module.loaded:
        raise LaunchError(
            f"{launch.label}: the module of {launch.function.symbol!r} has been unloaded",
            "unload a module only after its last launch",
        )
    for attribute in ("cluster", "cooperative"):
        if getattr(launch, attribute):
            raise LaunchError(
                f"{launch.label}: {launch.function.symbol!r} has the launch attribute `{attribute}`, "
                "which is not supported on the host",
                "remove the attribute from the step, or run on a CUDA device",
            )
    return launch.function
