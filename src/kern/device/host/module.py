"""Host modules: shared objects loaded from memory."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Final

from kern.device.base import FunctionLimits, ModuleError
from kern.device.host.crashes import labelled
from kern.device.host.threads import bound_spinning
from kern.manifest.params import Layout

OPENMP_RUNTIME: Final = "libgomp.so.1"
LOADING: Final = "a constructor of a host module"
UNLOADING: Final = "a destructor of a host module"
"""The labels of crashes outside of launches."""

_ENTRY: Final = ctypes.CFUNCTYPE(None)
# Arguments are passed unconverted, so the prototype names none: the C convention lets a call give more.


class _SymbolInfo(ctypes.Structure):
    _fields_ = (
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


_loader = ctypes.CDLL(None)
_loader.dlclose.argtypes = [ctypes.c_void_p]
_loader.dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_SymbolInfo)]


class HostFunction:
    """An exported function of a module. Its parameter layout is in the file, not in the loaded code."""

    layout: Layout | None = None
    limits = FunctionLimits()

    def __init__(self, module: HostModule, symbol: str, address: int) -> None:
        self.module = module
        self.symbol = symbol
        self.entry = _ENTRY(address)


class HostModule:
    """A loaded shared object; loading the same bytes again gives a separate one."""

    def __init__(self, image: bytes) -> None:
        """Raises ModuleError where the dynamic loader refuses the bytes."""
        bound_spinning()
        self._file = os.memfd_create("kern-module")
        # The loader takes an equal path for the library it already has, so the file stays open, and its
        # number taken, for as long as the loader may know it.
        self._path = f"/proc/self/fd/{self._file}"
        try:
            with open(self._file, "wb", closefd=False) as file:
                file.write(image)
            labelled(LOADING, self._open)()
        except OSError as error:
            os.close(self._file)
            reason = str(error).replace(self._path, "the module")
            raise ModuleError(
                f"a host module cannot be loaded: {reason}", "build the kernels again on this machine"
            ) from error
        self.loaded = True
        _keep_openmp()

    def _open(self) -> None:
        self._library = ctypes.CDLL(self._path, mode=os.RTLD_NOW | os.RTLD_LOCAL)

    def function(self, symbol: str) -> HostFunction:
        """The exported function `symbol`. Raises ModuleError where the module itself does not export it."""
        address = self._find(symbol)
        if address is None:
            raise ModuleError(
                f"the host module has no function {symbol!r}", "build the kernels and the manifest together"
            )
        return HostFunction(self, symbol, address)

    def unload(self) -> None:
        """Unload the code. A second call does nothing."""
        if not self.loaded:
            return
        self.loaded = False
        labelled(UNLOADING, self._close)()
        if not _resident(self._path):
            os.close(self._file)

    def _close(self) -> None:
        _loader.dlclose(self._library._handle)

    def _find(self, symbol: str) -> int | None:
        if not self.loaded or "\0" in symbol:
            return None
        try:
            function = self._library[symbol]
        except AttributeError:
            return None
        address = ctypes.cast(function, ctypes.c_void_p).value
        info = _SymbolInfo()
        # A look-up by name also finds what the module's libraries export.
        if _loader.dladdr(address, ctypes.byref(info)) and info.path == self._path.encode():
            return address
        return None


def _resident(path: str) -> bool:
    """Whether the loader kept the library after its last close (it may be marked NODELETE)."""
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    _loader.dlclose(library._handle)
    return True


def _keep_openmp() -> None:
    """Keep OpenMP's runtime loaded: its idle threads outlive the module that started them."""
    with suppress(OSError):
        ctypes.CDLL(OPENMP_RUNTIME, mode=os.RTLD_NOLOAD | os.RTLD_NODELETE)
