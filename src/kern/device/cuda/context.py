"""The primary context of one GPU: makes it current, checks calls, remembers the error that ended it."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from cuda.bindings import driver

from kern.device.base import CudaError, DeviceError, DeviceUnavailable, LaunchError

_ENDING: Final = frozenset({214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721})
"""CUresult codes after which every later call in the context fails alike.

CUDA driver API, CUresult: those documented as leaving the process in an inconsistent state, and
CUDA_ERROR_ECC_UNCORRECTABLE (214).
"""

_REMEMBERED: Final = 4
"""Launch lists whose names are kept, to report which may have failed."""


SEE_DRIVER: Final = "run `kern doctor`, and check with nvidia-smi that the GPU works and has free memory"
"""Help where only the driver's own message is known."""


class Context:
    """The primary context of GPU `ordinal`, retained until `release`; `with` makes it the thread's current one.

    It is shared with whatever else in the process uses that GPU. After an error that ends it, entering it raises
    that error again. Raises DeviceUnavailable.
    """

    def __init__(self, ordinal: int) -> None:
        _initialize()
        self.ordinal = ordinal
        self._device = _device(ordinal)
        self.ended_by: LaunchError | None = None
        self._launched: deque[tuple[int, str, int]] = deque(maxlen=_REMEMBERED)
        status, self._handle = driver.cuDevicePrimaryCtxRetain(self._device)
        if status:
            raise DeviceUnavailable(
                f"cuda:{ordinal} cannot be used: cuDevicePrimaryCtxRetain: {described(status)}",
                "check with nvidia-smi whether another process uses it exclusively",
            )
        self._retained = True

    @property
    def usable(self) -> bool:
        """Whether anything of this context can still be freed: an error that ends it frees everything."""
        return self._retained and self.ended_by is None

    def __enter__(self) -> None:
        if self.ended_by is not None:
            raise LaunchError(self.ended_by.message, self.ended_by.help)
        if not self._retained:
            raise DeviceError(f"cuda:{self.ordinal} is closed", "open it again")
        (status,) = driver.cuCtxPushCurrent(self._handle)
        if status:
            raise self.failure(status, "cuCtxPushCurrent")

    def __exit__(self, *_: object) -> None:
        driver.cuCtxPopCurrent()

    def checked(self, result: tuple[Any, ...], call: str, subject: str = "") -> Any:
        """What a driver call returned besides its status. Raises CudaError or, where a kernel failed, LaunchError."""
        status, *values = result
        if status:
            raise self.failure(status, call, subject)
        return values[0] if len(values) == 1 else tuple(values)

    def failure(self, status: Any, call: str, subject: str = "") -> DeviceError:
        """The error for a status: a LaunchError where a kernel failed, which may be any earlier launch's."""
        if int(status) in _ENDING:
            return self._ended(status)
        of = f" of {subject}" if subject else ""
        return CudaError(f"{call}{of} on cuda:{self.ordinal} failed: {described(status)}", SEE_DRIVER)

    def launched(self, stream: int, title: str, launches: int) -> None:
        """Note that a list of that many launches was given to `stream`, in case one of them fails."""
        if not self._launched or self._launched[-1] != (stream, title, launches):
            self._launched.append((stream, title, launches))

    def waited(self, stream: int) -> None:
        """Note that everything given to `stream` has run."""
        self._launched = deque((each for each in self._launched if each[0] != stream), _REMEMBERED)

    def attribute(self, name: str) -> int:
        """A CUdevice_attribute, without the prefix."""
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.checked(driver.cuDeviceGetAttribute(which, self._device), "cuDeviceGetAttribute", name))

    def name(self) -> str:
        """The GPU's name."""
        name = self.checked(driver.cuDeviceGetName(128, self._device), "cuDeviceGetName")
        return str(name.split(b"\0")[0].decode())

    def total_memory(self) -> int:
        """Bytes of memory that the GPU has."""
        return int(self.checked(driver.cuDeviceTotalMem(self._device), "cuDeviceTotalMem"))

    def release(self) -> None:
        """Release the context, which ends with its last user. A second call does nothing."""
        if self._retained:
            self._retained = False
            driver.cuDevicePrimaryCtxRelease(self._device)

    def _ended(self, status: Any) -> LaunchError:
        """Remember the first error that ends the context; every later failure is reported as that one."""
        if self.ended_by is None:
            titles = "; ".join(title for _, title, _ in self._launched)
            where = f", in one of these launch lists: {titles}" if titles else ""
            help = "run with --check, or load with check=True, to have the launch named"
            if [launches for *_, launches in self._launched] == [1]:
                where, help = f" in {titles}", "check the arguments and the code of this kernel"
            self.ended_by = LaunchError(
                f"a kernel on cuda:{self.ordinal} failed{where}: {described(status)}",
                f"{help}; nothing more runs on this GPU in this process",
            )
        return LaunchError(self.ended_by.message, self.ended_by.help)


def described(status: Any) -> str:
    """A CUresult's name and text."""
    _, name = driver.cuGetErrorName(status)
    _, text = driver.cuGetErrorString(status)
    if name is None:
        return f"CUresult {int(status)}"
    return f"{name.decode()} ({text.decode()})"


def driver_version() -> str:
    """The CUDA version that the driver supports, `13.0`."""
    _, version = driver.cuDriverGetVersion()
    return f"{version // 1000}.{version % 1000 // 10}"


def _initialize() -> None:
    help = "use a machine with an NVIDIA GPU and its driver, or a folder that is built for the host"
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError as error:  # raised by the bindings where libcuda.so.1 is not found
        raise DeviceUnavailable("this machine has no NVIDIA driver (libcuda.so.1 is not found)", help) from error
    if status:
        raise DeviceUnavailable(f"no GPU can be used: cuInit: {described(status)}", help)


def _device(ordinal: int) -> Any:
    status, count = driver.cuDeviceGetCount()
    if status or ordinal >= count:
        there = ", ".join(f"cuda:{each}" for each in range(count or 0)) or "none"
        raise DeviceUnavailable(f"there is no GPU cuda:{ordinal}", f"the GPUs of this machine are: {there}")
    status, device = driver.cuDeviceGet(ordinal)
    if status:
        raise DeviceUnavailable(f"cuda:{ordinal} cannot be used: cuDeviceGet: {described(status)}", SEE_DRIVER)
    return device
