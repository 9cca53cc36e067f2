"""The lines of `launches.jsonl` as data, one class for each kind of line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter

FORMAT = 1
MAX_ITEMS: Final = 2**16
"""Bound on the nodes of a graph, the parameters and addresses of a launch, and every other list in a line."""

Word: TypeAlias = Annotated[int, Field(ge=0, lt=2**64)]
Half: TypeAlias = Annotated[int, Field(ge=0, lt=2**32)]
Hash: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Three: TypeAlias = tuple[Half, Half, Half]
_Item = TypeVar("_Item")
Many: TypeAlias = Annotated[tuple[_Item, ...], Field(fail_fast=True, max_length=MAX_ITEMS)]
"""A list that is refused at its first wrong item: an error for each would take more memory than the line."""
Memory: TypeAlias = Literal["device", "host", "pinned", "managed"]
_Few: TypeAlias = Annotated[list[int], Field(fail_fast=True, max_length=16)]
_Other: TypeAlias = Annotated[dict[str, str], Field(max_length=64)]
Attributes: TypeAlias = Annotated[dict[str, int | bool | str | _Few | _Other], Field(max_length=64)]
"""A launch's: a number, a cluster's sides, or in `other` the bytes of those that have no name."""


class _Strict:
    """How fields are read: with exactly their types, bytes from hexadecimal digits, unknown fields left out."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(strict=True, extra="ignore", val_json_bytes="hex")


@dataclass(frozen=True, slots=True)
class ProcessRecord(_Strict):
    """The first line: whose launches these are. Times are CLOCK_MONOTONIC in ns."""

    record: Literal["process"]
    format: int
    pid: Word
    t: Word
    command: Many[str] = ()
    driver: int | None = None
    cupti: int | None = None


@dataclass(frozen=True, slots=True)
class ModuleRecord(_Strict):
    """A module was loaded, `size` bytes long."""

    record: Literal["module"]
    t: Word
    module: Hash
    size: Annotated[Word, Field(alias="bytes")]


@dataclass(frozen=True, slots=True)
class UnloadRecord(_Strict):
    """A module was unloaded."""

    record: Literal["unload"]
    t: Word
    module: Hash


@dataclass(frozen=True, slots=True)
class KernelAttributes(_Strict):
    """What the driver reported about a kernel: registers per thread, and bytes; None where it did not."""

    registers: Half | None = None
    static_shared: Half | None = None
    constant: Half | None = None
    local: Half | None = None
    max_threads: Half | None = None
    ptx_version: Half | None = None
    binary_version: Half | None = None


@dataclass(frozen=True, slots=True)
class KernelRecord(_Strict):
    """A function handle, before its first launch: symbol, module, and the offset and size of each parameter."""

    record: Literal["kernel"]
    kernel: Word
    symbol: Annotated[str, Field(min_length=1, max_length=2**16)]
    module: Hash | None = None
    found: str | None = None
    candidates: Many[Hash] = ()
    attributes: KernelAttributes = KernelAttributes()
    params: Many[tuple[Half, Half]] | None = None
    layout: str | None = None


@dataclass(frozen=True, slots=True)
class PointerRecord(_Strict):
    """An address, at byte `at` of a parameter, or of the whole packed buffer; `data` is what a host pointer led to."""

    at: Half
    memory: Memory
    param: Half | None = None
    range: tuple[Word, Word] | None = None
    data: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given(_Strict):
    """What a launch or a node was given besides its geometry."""

    shared: Half = 0
    attributes: Attributes = field(default_factory=dict)
    via: str = "params"
    params: Many[bytes] | None = None
    whole: Annotated[bytes | None, Field(alias="bytes")] = None
    pointers: Many[PointerRecord] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord(_Given):
    """A launch."""

    record: Literal["launch"]
    t: Word
    thread: Word
    kernel: Word
    grid: Three
    block: Three
    context: Word = 0
    stream: Word = 0
    capturing: bool = False


@dataclass(frozen=True, slots=True)
class CopyRecord(_Strict):
    """A copy between memories of the host (H) and the device (D)."""

    record: Literal["copy"]
    t: Word
    source: Annotated[Word, Field(alias="from")]
    target: Annotated[Word, Field(alias="to")]
    size: Annotated[Word, Field(alias="bytes")]
    kind: str
    thread: Word = 0
    stream: Word = 0
    data: bytes | None = None
    capturing: bool = False


@dataclass(frozen=True, slots=True)
class FillRecord(_Strict):
    """A memset: `size` bytes with a value of `width` bytes."""

    record: Literal["fill"]
    t: Word
    target: Annotated[Word, Field(alias="to")]
    size: Annotated[Word, Field(alias="bytes")]
    value: Word = 0
    width: Half = 1
    thread: Word = 0
    stream: Word = 0
    capturing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord(_Given):
    """A node of a graph: a launch where it has a kernel, else another `type` of work."""

    type: str = "kernel"
    kernel: Word | None = None
    grid: Three = (1, 1, 1)
    block: Three = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class GraphRecord(_Strict):
    """An executable graph's nodes, at its instantiation or after an update."""

    record: Literal["graph"]
    t: Word
    graph: Word
    nodes: Many[NodeRecord]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class GraphLaunchRecord(_Strict):
    """A graph ran."""

    record: Literal["graph_launch"]
    t: Word
    graph: Word
    thread: Word = 0
    stream: Word = 0


@dataclass(frozen=True, slots=True)
class LostRecord(_Strict):
    """Something happened that could not be recorded."""

    record: Literal["lost"]
    t: Word
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class EndRecord(_Strict):
    """The recorded process exited regularly after so many launches."""

    record: Literal["end"]
    t: Word
    launches: Word


Record: TypeAlias = (
    ProcessRecord
    | ModuleRecord
    | UnloadRecord
    | KernelRecord
    | LaunchRecord
    | CopyRecord
    | FillRecord
    | GraphRecord
    | GraphLaunchRecord
    | LostRecord
    | EndRecord
)

LINE: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="record")])
"""Reads one line; raises pydantic's ValidationError."""
