"""What ran, as analyses see it: kernels, their launches with parameters, copies and fills."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias

from kern.manifest.params import Layout
from kern.mining.schema import KernelAttributes, Memory, Three

WORD: Final = 8
"""Bytes of an address."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address at byte `at` of parameter `param`; of the packed buffer, and `param` 0, where the layout is not known.

    `memory` and the allocation's `range` (base and bytes) are the driver's answer; for `host` memory the range is that
    of the process's mapping. `data` is what a host pointer led to, at most 256 bytes.
    """

    param: int
    at: int
    address: int
    memory: Memory
    range: tuple[int, int] | None
    data: bytes | None

    @property
    def on_device(self) -> bool:
        """Whether a kernel may follow it: device or managed memory."""
        return self.memory in ("device", "managed")


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel as it was launched: `module` is the sha256 of the module that holds it, None where that is not known.

    `layout` is the offset and size of each parameter, None where it is not known. `candidates` are the modules that
    may hold it, where there is more than one.
    """

    symbol: str
    module: str | None
    layout: Layout | None
    attributes: KernelAttributes
    found: str | None
    candidates: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        """What identifies a kernel: the symbol and the module, which is empty where it is not known."""
        return self.symbol, self.module or ""


@dataclass(frozen=True, slots=True)
class _Ran:
    """What ran: `line` is its line in the recording, for a graph's node that of the graph's launch.

    `order` counts all launches, copies and fills that ran. `time` is in ns, when the call returned.
    """

    order: int
    line: int
    time: int
    thread: int
    stream: int


@dataclass(frozen=True, slots=True, eq=False)
class Launch(_Ran):
    """A launch. `params` has each parameter's bytes, None where the layout is not known.

    `whole` is then the packed buffer, if there was one. `graph` is the graph that a node belongs to, None for a single
    launch.
    """

    what: ClassVar[Literal["launch"]] = "launch"
    kernel: Kernel
    grid: Three
    block: Three
    shared: int
    attributes: Mapping[str, Any]
    params: tuple[bytes, ...] | None
    pointers: tuple[Pointer, ...]
    via: str = "params"
    whole: bytes | None = None
    graph: int | None = None

    @property
    def symbol(self) -> str:
        """The kernel's symbol, as in its module."""
        return self.kernel.symbol

    def _param(self, index: int) -> bytes:
        if self.params is None:
            raise LookupError(f"line {self.line}: the parameters of {self.symbol} are not known")
        return self.params[index]

    def integer(self, index: int, signed: bool = True) -> int:
        """Parameter `index`, whatever its size, as an integer."""
        return int.from_bytes(self._param(index), "little", signed=signed)

    def f32(self, index: int) -> float:
        """Parameter `index`, of 4 bytes, as a float."""
        value: float = struct.unpack("<f", self._param(index))[0]
        return value

    def address(self, index: int) -> int:
        """Parameter `index`, of 8 bytes, as an address; 0 is the null pointer."""
        return self.integer(index, signed=False)

    def pointer(self, index: int, at: int = 0) -> Pointer | None:
        """What is known of the address at byte `at` of parameter `index`; None where it is not in any memory."""
        return next((p for p in self.pointers if p.param == index and p.at == at), None)


@dataclass(frozen=True, slots=True)
class Copy(_Ran):
    """A copy of `size` bytes; `data` is its source where that was on the host and is short."""

    what: ClassVar[Literal["copy"]] = "copy"
    source: int
    target: int
    size: int
    kind: str
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Fill(_Ran):
    """A memset of `size` bytes with a value of `width` bytes."""

    what: ClassVar[Literal["fill"]] = "fill"
    target: int
    size: int
    value: int
    width: int


Event: TypeAlias = Launch | Copy | Fill
