"""From a device's name to the device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kern.device.base import Device, DeviceUnavailable

DEVICE_OF_MODULES: Final[Mapping[str, str]] = {"host": "host", "cubin": "cuda"}
"""The name of the device that runs a kind of module: what `auto` stands for."""


def open_device(name: str) -> Device:
    """The device called `name`: `host`.

    Raises DeviceUnavailable for a device that this machine or this installation does not have, and for a
    name that is none.
    """
    if name == "host":
        from kern.device.host.device import HostDevice

        return HostDevice()
    if re.fullmatch(r"cuda(:[0-9]+)?", name):
        raise DeviceUnavailable(
            f"this installation of kern has no CUDA device, so {name!r} cannot be opened",
            "use the device 'host', with kernels built for the host",
        )
    raise DeviceUnavailable(f"there is no device called {name!r}", "the devices are: host")
