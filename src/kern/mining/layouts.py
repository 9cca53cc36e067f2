"""Parameter layouts from the modules themselves, for kernels whose layout the driver did not report.

A packed buffer is cut where the module says its parameters are, and each address is put into its parameter:

>>> address = Pointer(param=0, at=8, address=0xA, memory="device", range=None, data=None)
>>> _placed(address, Layout(offsets=(0, 8), sizes=(4, 8)))
Pointer(param=1, at=0, address=10, memory='device', range=None, data=None)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from kern.artifact.cubin import MACHINE, describe
from kern.artifact.elf import Elf
from kern.artifact.errors import BadModule
from kern.artifact.types import KernelInfo
from kern.manifest.params import Layout
from kern.mining.errors import ModuleMissing
from kern.mining.events import WORD, Event, Kernel, Launch, Pointer
from kern.mining.recording import Recording


def complete(recording: Recording) -> Recording:
    """The recording, with layouts and registers that only the modules have, and packed parameters cut by them.

    A kernel whose module is unknown, missing or unreadable keeps what the driver reported.
    """
    lacking = [k for k in recording.kernels if k.module and (k.layout is None or k.attributes.registers is None)]
    if not lacking:
        return recording

    @cache
    def described(module: str) -> Mapping[str, KernelInfo]:
        try:
            elf = Elf(recording.module(module))
            return describe(elf)[1] if elf.machine == MACHINE else {}
        except (ModuleMissing, BadModule):
            return {}

    better = {kernel: _completed(kernel, described(kernel.module or "").get(kernel.symbol)) for kernel in lacking}
    return replace(
        recording,
        kernels=tuple(better.get(kernel, kernel) for kernel in recording.kernels),
        events=tuple(_cut(event, better) for event in recording.events),
    )


def _completed(kernel: Kernel, info: KernelInfo | None) -> Kernel:
    if info is None:
        return kernel
    attributes = kernel.attributes
    if attributes.registers is None:
        attributes = replace(attributes, registers=info.registers)
    return replace(kernel, layout=kernel.layout or info.layout, attributes=attributes)


def _cut(event: Event, better: Mapping[Kernel, Kernel]) -> Event:
    """A launch with its better known kernel; its packed buffer cut into parameters, if it holds them all."""
    if not isinstance(event, Launch) or event.kernel not in better:
        return event
    kernel, whole = better[event.kernel], event.whole
    layout = kernel.layout
    ends = [] if layout is None else [at + size for at, size in zip(layout.offsets, layout.sizes, strict=True)]
    if layout is None or event.params is not None or whole is None or max(ends, default=0) > len(whole):
        return replace(event, kernel=kernel)
    params = tuple(whole[at:end] for at, end in zip(layout.offsets, ends, strict=True))
    pointers = (_placed(pointer, layout) for pointer in event.pointers)
    return replace(event, kernel=kernel, params=params, pointers=tuple(p for p in pointers if p is not None))


def _placed(pointer: Pointer, layout: Layout) -> Pointer | None:
    """A pointer of the whole buffer in its parameter, None where it lies between two."""
    for param, (at, size) in enumerate(zip(layout.offsets, layout.sizes, strict=True)):
        if at <= pointer.at and pointer.at + WORD <= at + size:
            return replace(pointer, param=param, at=pointer.at - at)
    return None
