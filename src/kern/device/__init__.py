"""The processors that kernels run on, behind one protocol."""

from kern.device.open import DEVICE_OF_MODULES, open_device

__all__ = ["DEVICE_OF_MODULES", "open_device"]
