"""A survey of how kernels take their parameters, and which of them can be launched under a manifest.

>>> from dataclasses import replace
>>> flat, clustered = launch(0, "scale", 1, 0xA), replace(launch(1, "add", 1), attributes={"cluster": [16, 1, 1]})
>>> [(abi.kernel.symbol, abi.traits, abi.reasons) for abi in survey([flat, clustered])]
[('scale', ('flat',), ()), ('add', ('flat',), ('clusters of more than 8 blocks',))]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kern.manifest.params import SCALAR_BYTES, Layout
from kern.mining.events import WORD, Kernel, Launch, Pointer

Trait = Literal["flat", "packed struct", "tensor map", "packed extra", "host pointer", "unknown layout"]
TRAITS: Final[tuple[Trait, ...]] = (
    "flat",
    "packed struct",
    "tensor map",
    "packed extra",
    "host pointer",
    "unknown layout",
)
MAX_CLUSTER: Final = 8
_SCALARS: Final = frozenset(SCALAR_BYTES.values())
_KNOWN_ATTRIBUTES: Final = frozenset({"cluster", "programmatic_stream_serialization", "cooperative"})

_MAP_BYTES: Final = 128
_PITCH_UNIT: Final = 16


@dataclass(frozen=True, slots=True)
class KernelAbi:
    """How a kernel was launched: `traits` of its parameters, and the `reasons` why no manifest can launch it.

    A tensor map is recognised by its form, see `holds_tensor_map`; all else is what the recording says.
    """

    kernel: Kernel
    launches: int
    sizes: tuple[int, ...] | None
    traits: tuple[Trait, ...]
    reasons: tuple[str, ...]

    @property
    def replayable(self) -> bool:
        """Whether a manifest's step can launch it: its parameters are pointers and scalars."""
        return not self.reasons


def survey(launches: Sequence[Launch]) -> tuple[KernelAbi, ...]:
    """Every kernel, the most launched first."""
    found: dict[tuple[str, str], list[Launch]] = {}
    for launch in launches:
        found.setdefault(launch.kernel.key, []).append(launch)
    return tuple(sorted((_describe(same) for same in found.values()), key=lambda abi: -abi.launches))


def _describe(launches: Sequence[Launch]) -> KernelAbi:
    kernel = launches[0].kernel
    traits = {trait for launch in launches for trait in _traits(launch)}
    return KernelAbi(
        kernel,
        len(launches),
        kernel.layout.sizes if kernel.layout else None,
        tuple(trait for trait in TRAITS if trait in traits) or ("flat",),
        tuple(dict.fromkeys(_reasons(kernel, launches, traits))),
    )


def _traits(launch: Launch) -> Iterator[Trait]:
    if launch.via == "extra":
        yield "packed extra"
    if launch.kernel.layout is None:
        yield "unknown layout"
        return
    sizes = launch.kernel.layout.sizes
    if any(size > WORD for size in sizes):
        yield "packed struct"
    for pointer in launch.pointers:
        flat = launch.params is not None and sizes[pointer.param] == WORD
        if flat and not pointer.on_device:
            yield "host pointer"
        if launch.params is not None and not flat and holds_tensor_map(launch.params[pointer.param], pointer):
            yield "tensor map"


def holds_tensor_map(param: bytes, pointer: Pointer) -> bool:
    """Whether a tensor map (CUtensorMap) seems to begin at an address inside a parameter.

    The struct is opaque; this is its form as drivers of CUDA 13 make it for sm_90, 128 bytes: the device address;
    a word with 4 in its upper half, 6 above its lowest 12 bits, and the rank, 1 to 5, in bits 4 to 7; the pitch of a
    row in units of 16 bytes; and at byte 32 the elements of a row, less one, which the row must have room for.
    """
    data = param[pointer.at : pointer.at + _MAP_BYTES]
    if len(data) < _MAP_BYTES or not pointer.on_device:
        return False
    word, pitch, row = (int.from_bytes(data[at : at + 4], "little") for at in (8, 12, 32))
    rank = word >> 4 & 0xF
    return word >> 16 == 4 and word >> 12 & 0xF == 6 and 1 <= rank <= 5 and (rank == 1 or pitch * _PITCH_UNIT > row)


def _reasons(kernel: Kernel, launches: Sequence[Launch], traits: set[Trait]) -> Iterator[str]:
    """What a manifest cannot express about these launches."""
    if kernel.module is None:
        yield "module unknown"
    if kernel.layout is None:
        yield "parameters unknown"
    else:
        yield from _parameter_reasons(kernel.layout)
    if "host pointer" in traits:
        yield "an address of the host"
    attributes = Counter(name for launch in launches for name in launch.attributes)
    if strange := sorted(attributes.keys() - _KNOWN_ATTRIBUTES):
        yield f"launch attribute {', '.join(strange)}"
    if any(_blocks(launch) > MAX_CLUSTER for launch in launches):
        yield f"clusters of more than {MAX_CLUSTER} blocks"


def _parameter_reasons(layout: Layout) -> Iterator[str]:
    end = 0
    for offset, size in zip(layout.offsets, layout.sizes, strict=True):
        if size > WORD:
            yield f"a {size}-byte struct"
        elif size not in _SCALARS:
            yield f"a parameter of {size} bytes"
        elif offset != -(-end // size) * size:
            yield f"a parameter of {size} bytes at byte {offset}"
        end = offset + size


def _blocks(launch: Launch) -> int:
    cluster = launch.attributes.get("cluster")
    if not isinstance(cluster, list) or not all(isinstance(side, int) for side in cluster):
        return 1
    blocks = 1
    for side in cluster:
        blocks *= side
    return blocks
