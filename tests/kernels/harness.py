"""Running single kernels of the library, with numpy arrays as their buffers: on the host device, or elsewhere."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from kern.device.host.device import HostDevice
from kern.device.host.module import HostModule
from kern.kernels.compile_host import compile_host_modules
from kern.kernels.host_library import host_kernels
from kern.kernels.interfaces import INTERFACES
from kern.manifest.expressions import evaluate
from kern.manifest.launches import KernelLaunch
from kern.manifest.params import DTYPE_BYTES, Param, layout
from kern.manifest.types import Arg, Kernel, ScratchArg, Step

BF16 = ml_dtypes.bfloat16
SYMBOLS = ("tokens", "seqs")
PACK = {"i32": "i", "u32": "I", "i64": "q", "f32": "f", "u8": "B"}


@dataclass(frozen=True)
class Call:
    """One launch of an entry. A value is an array, passed by address, or a number."""

    module: str
    symbol: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    params: tuple[Param, ...]
    values: tuple[np.ndarray | float, ...]


@dataclass(frozen=True)
class Library:
    """The compiled modules, and what runs their kernels: `execute` makes calls in order, on so many threads."""

    images: Mapping[str, bytes]
    execute: Callable[[Sequence[Call], int], None]

    def kernels(self, q_heads: int, kv_heads: int) -> dict[str, Kernel]:
        pins = {name: hashlib.sha256(image).hexdigest() for name, image in self.images.items()}
        return host_kernels(pins, q_heads=q_heads, kv_heads=kv_heads)

    def run(self, entry: str, *, threads: int = 1, **arguments: np.ndarray | float) -> None:
        """Launch every step of `entry` for its parameters and the symbols: arrays by address, numbers by value."""
        kernel = self.kernels(arguments.get("q_heads", 1), arguments.get("kv_heads", 1))[entry]
        args, symbols = in_order(entry, arguments)
        scratch = {
            name: np.full(int(np.prod([evaluate(e, symbols) for e in s.shape])) * DTYPE_BYTES[s.dtype], 0xFF, np.uint8)
            for name, s in kernel.impl.scratch.items()
        }
        self.execute([_call(step, args, scratch, symbols) for step in kernel.impl.steps], threads)


def in_order(entry: str, arguments: Mapping[str, Any]) -> tuple[list[Any], dict[str, int]]:
    """An entry's arguments in the order of its interface, and the symbols."""
    names = INTERFACES[entry]
    unknown = arguments.keys() - names.keys() - {*SYMBOLS, "q_heads", "kv_heads"}
    if unknown:
        raise TypeError(f"{entry} has no parameter {', '.join(unknown)}")
    return [arguments[name] for name in names], {name: arguments[name] for name in SYMBOLS if name in arguments}


def _call(step: Step, args, scratch, symbols) -> Call:
    values = []
    for arg in step.args:
        if isinstance(arg, Arg):
            values.append(args[arg.arg])
        elif isinstance(arg, ScratchArg):
            values.append(scratch[arg.scratch])
        else:
            values.append(arg.value)
    assert step.cubin is not None
    grid = tuple(evaluate(e, symbols) for e in step.grid)
    return Call(step.cubin, step.symbol, grid, step.block, step.params, tuple(values))


@dataclass(frozen=True)
class Native:
    """Kernels that this machine's host device runs; modules are loaded once."""

    images: Mapping[str, bytes]
    modules: dict[str, HostModule] = field(default_factory=dict)

    def execute(self, calls: Sequence[Call], threads: int) -> None:
        device = HostDevice(threads)
        device.launch(device.prepare([self._launch(call) for call in calls]), device.stream())

    def _launch(self, call: Call) -> KernelLaunch:
        where, buffer = layout(call.params), b""
        for param, value, offset in zip(call.params, call.values, where.offsets, strict=True):
            code, plain = (PACK[param.scalar], value) if param.scalar else ("Q", value.ctypes.data)
            buffer = buffer.ljust(offset, b"\0") + struct.pack(f"={code}", plain)
        if call.module not in self.modules:
            self.modules[call.module] = HostDevice(1).load_module(self.images[call.module])
        function = self.modules[call.module].function(call.symbol)
        return KernelLaunch(call.symbol, function, call.grid, call.block, 0, buffer, where)


@cache
def compiled(target: str) -> Library:
    """The library for `target`, compiled once a session."""
    images = compile_host_modules(target)
    return Library(images, Native(images).execute)


def bf16(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float32).astype(BF16)


def poison(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """An output that no kernel has written: NaNs, or an integer no kernel would write."""
    return np.full(shape, np.nan if np.dtype(dtype).kind in "fV" else -77, dtype)


def close(got: np.ndarray, want: np.ndarray, bits: int = 8, slack: float = 1e-5) -> None:
    """Equal but for rounding to `bits` of mantissa and `slack`, absolute, from sums in f32."""
    got = np.asarray(got, np.float64)
    assert got.shape == want.shape
    wrong = ~(np.abs(got - want) <= np.abs(want) * 2.0**-bits + slack)
    assert not wrong.any(), f"{wrong.sum()} of {wrong.size} differ, first {got[wrong][0]} for {want[wrong][0]}"
