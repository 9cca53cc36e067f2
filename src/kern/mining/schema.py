"""The lines of `launches.jsonl` as data, one class for each kind of line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final, Literal, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter

FORMAT = 1
MAX_ITEMS: Final = 2**16
"""Bound on the nodes of a graph, the parameters and addresses of a launch, and every other list in a line."""
WIRE = ConfigDict(strict=True, extra="ignore", val_json_bytes="hex")

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


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """The first line: whose launches these are. Times are CLOCK_MONOTONIC in ns."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
    record: Literal["process"]
    format: int
    pid: Word
    t: Word
    command: Many[str] = ()
    driver: int | None = None
    cupti: int | None = None


@dataclass(frozen=True, slots=True)
class ModuleRecord:
    """A module was loaded, `size` bytes long."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
    record: Literal["module"]
    t: Word
    module: Hash
    size: Annotated[Word, Field(alias="bytes")]


@dataclass(frozen=True, slots=True)
class UnloadRecord:
    """A module was unloaded."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
    record: Literal["unload"]
    t: Word
    module: Hash


@dataclass(frozen=True, slots=True)
class KernelAttributes:
    """What the driver reported about a kernel: registers per thread, and bytes; None where it did not."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
    registers: Half | None = None
    static_shared: Half | None = None
    constant: Half | None = None
    local: Half | None = None
    max_threads: Half | None = None
    ptx_version: Half | None = None
    binary_version: Half | None = None


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A function handle, before its first launch: symbol, module, and the offset and size of each parameter."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
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
class PointerRecord:
    """An address, at byte `at` of a parameter, or of the whole packed buffer; `data` is what a host pointer led to."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
    at: Half
    memory: Memory
    param: Half | None = None
    range: tuple[Word, Word] | None = None
    data: bytes | None = None


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """A launch."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
    record: Literal["launch"]
    t: Word
    thread: Word
    kernel: Word
    grid: Three
    block: Three
    shared: Half = 0
    context: Word = 0
    stream: Word = 0
    attributes: Attributes = field(default_factory=dict)
    via: str = "params"
    params: Many[bytes] | None = None
    whole: Annotated[bytes | None, Field(alias="bytes")] = None
    pointers: Many[PointerRecord] = ()
    capturing: bool = False


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """A copy between memories of the host (H) and the device (D)."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
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
class FillRecord:
    """A memset: `size` bytes with a value of `width` bytes."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
    record: Literal["fill"]
    t: Word
    target: Annotated[Word, Field(alias="to")]
    size: Annotated[Word, Field(alias="bytes")]
    value: Word = 0
    width: Half = 1
    thread: Word = 0
    stream: Word = 0
    capturing: bool = False


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node of a graph: a launch where it has a kernel, else another `type` of work."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
    type: str = "kernel"
    kernel: Word | None = None
    grid: Three = (1, 1, 1)
    block: Three = (1, 1, 1)
    shared: Half = 0
    attributes: Attributes = field(default_factory=dict)
    via: str = "params"
    params: Many[bytes] | None = None
    whole: Annotated[bytes | None, Field(alias="bytes")] = None
    pointers: Many[PointerRecord] = ()


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """An executable graph's nodes, at its instantiation or after an update."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
    record: Literal["graph"]
    t: Word
    graph: Word
    nodes: Many[NodeRecord]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class GraphLaunchRecord:
    """A graph ran."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
    record: Literal["graph_launch"]
    t: Word
    graph: Word
    thread: Word = 0
    stream: Word = 0


@dataclass(frozen=True, slots=True)
class LostRecord:
    """Something happened that could not be recorded."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
    record: Literal["lost"]
    t: Word
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class EndRecord:
    """The recorded process exited regularly after so many launches."""

    __pydantic_config__: ClassVar[ConfigDict] = WIRE
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
