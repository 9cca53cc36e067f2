"""From a device's name to the device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kern.device.base import Device, DeviceUnavailable
from kern.manifest.errors import install_hint

DEVICE_OF_MODULES: Final[Mapping[str, str]] = {"host": "host", "cubin": "cuda"}
"""The name of the device that runs a kind of module: what `auto` stands for."""


def open_device(name: str, *, tune: bool = False) -> Device:
    """The device called `name`: `host`, `cuda` (the first GPU) or `cuda:N`.

    With `tune`, a GPU chooses the algorithms of its built-in operators again instead of using those in the user's
    cache; the host has no choice of algorithms. Raises DeviceUnavailable for a device that this machine or this
    installation does not have, and for an unknown name.
    """
    if name == "host":
        from kern.device.host.device import HostDevice

        return HostDevice()
    if match := re.fullmatch(r"cuda(?::([0-9]{1,9}))?", name):
        return _cuda(int(match[1] or 0), tune)
    raise DeviceUnavailable(f"unknown device {name!r}", "the devices are: host, cuda, cuda:N")


def _cuda(ordinal: int, tune: bool) -> Device:
    try:
        from kern.device.cuda.device import CudaDevice
    except ImportError as error:
        raise DeviceUnavailable(
            f"cuda:{ordinal} needs cuda-bindings, which cannot be imported: {error}",
            install_hint("cuda"),
        ) from error
    return CudaDevice(ordinal, tune=tune)
