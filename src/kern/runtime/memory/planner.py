"""The memory plan: the arenas of a manifest, their sizes, and the offset of everything in them."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kern.manifest.arrays import ALIGNMENT, round_up
from kern.manifest.errors import KernError, variant
from kern.manifest.types import Manifest
from kern.runtime.memory.arena import pack, pairs, peak
from kern.runtime.memory.lifetimes import BlockKey, blocks
from kern.runtime.memory.sizes import ScratchKey, Sizes, sizes
from kern.verifier import VerifiedManifest

Key = TypeVar("Key", bound=Hashable)


MAX_PAIRS: Final = 2**22
"""Most pairs of workspace blocks alive at the same time, over all programs; a large model has thousands."""


TooManyBlocks = variant(KernError, "too-many-blocks", "Too many buffers are alive at once to plan their memory.")


@dataclass(frozen=True, slots=True)
class Arena(Generic[Key]):
    """`size` bytes whose base is a multiple of `alignment`, and the offsets of what is in them, in bytes."""

    size: int
    alignment: int
    offsets: Mapping[Key, int]

    @property
    def allocation(self) -> int:
        """Bytes to allocate on a device, which aligns only to ALIGNMENT."""
        return self.size + self.alignment - ALIGNMENT if self.size else 0


@dataclass(frozen=True, slots=True)
class Workspace:
    """The arena that all programs share, since nothing in it is kept between executions.

    `size` is allocated; `unshared` would be needed if every buffer and scratch had its own memory; `lower_bound` is
    the most bytes alive at one launch of any program, below which no plan can go. `offsets` has, for each program, each
    buffer and each scratch of a dispatch. `resident` has the buffers with their own memory: all of them without
    sharing, none otherwise.
    """

    size: int
    unshared: int
    lower_bound: int
    offsets: Mapping[str, Mapping[BlockKey, int]]
    resident: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes by class; every offset is a multiple of at least 256 bytes.

    `weights` is the sum of the weights' bytes, `states` and `io` (inputs, outputs, carries and kept scratch)
    have fixed offsets, and `workspace` is planned by lifetime.
    """

    sizes: Sizes
    sharing: bool
    weights: int
    states: Arena[str]
    io: Arena[str | ScratchKey]
    workspace: Workspace

    @property
    def allocated(self) -> int:
        """Bytes that loading allocates in addition to the weights, which some devices use in place."""
        return self.states.allocation + self.io.allocation + self.workspace.size


def plan(
    verified: VerifiedManifest,
    *,
    capacity: int = 4096,
    sequences: int = 1,
    pool_tokens: int | None = None,
    sharing: bool = True,
) -> MemoryPlan:
    """Plan the memory of a manifest; needs neither its files nor a device.

    `capacity` counts the tokens of one sequence, `pool_tokens` those of all; see `sizes` for what a state takes.
    Without `sharing` every workspace buffer and scratch has its own memory. Raises BadCapacity, BadPool, TooManyBlocks.
    """
    manifest = verified.manifest
    reserved = sizes(verified, capacity, sequences, pool_tokens)
    weights = [reserved.buffers[name] for name, buffer in manifest.buffers.items() if buffer.class_ == "weight"]
    return MemoryPlan(
        reserved,
        sharing,
        sum(round_up(size) for size in weights),
        _consecutive((name, reserved.states[name], state.align) for name, state in manifest.states.items()),
        _consecutive(_arrays(manifest, reserved, ("input", "output", "carry"), keep=True)),
        _workspace(manifest, reserved, sharing),
    )


def _consecutive(items: Iterable[tuple[Key, int, int]]) -> Arena[Key]:
    """The items (key, size, alignment) in order, each at the next multiple of its alignment."""
    offsets, end, most = {}, 0, ALIGNMENT
    for key, size, alignment in items:
        alignment = max(alignment, ALIGNMENT)
        most = max(most, alignment)
        offsets[key] = round_up(end, alignment)
        end = offsets[key] + size
    return Arena(round_up(end), most, offsets)


def _arrays(
    manifest: Manifest, reserved: Sizes, classes: Container[str], *, keep: bool
) -> Iterable[tuple[str | ScratchKey, int, int]]:
    """The buffers of these classes, and the scratch that is kept or is not: key, size, alignment."""
    for name, buffer in manifest.buffers.items():
        if buffer.class_ in classes:
            yield name, reserved.buffers[name], ALIGNMENT
    for kernel, entry in manifest.kernels.items():
        for name, scratch in entry.impl.scratch.items():
            if scratch.keep == keep:
                yield (kernel, name), reserved.scratch[kernel, name], ALIGNMENT


def _workspace(manifest: Manifest, reserved: Sizes, sharing: bool) -> Workspace:
    alive = {program: blocks(manifest, program, reserved) for program in manifest.programs}
    if (together := sum(map(pairs, alive.values()))) > MAX_PAIRS:
        raise TooManyBlocks(
            f"{together:,} pairs of workspace buffers and scratch are alive at once; the limit is {MAX_PAIRS:,}",
            "use fewer of them, or end their use sooner",
        )
    separate = _consecutive(_arrays(manifest, reserved, ("workspace",), keep=False))
    bound = max(peak(of) for of in alive.values())
    if sharing:
        placed = {program: pack(of) for program, of in alive.items()}
        size = max(offsets.size for offsets in placed.values())
        return Workspace(size, separate.size, bound, {program: p.of for program, p in placed.items()}, {})
    offsets = {
        program: {block.key: separate.offsets[_owner(manifest, program, block.key)] for block in of}
        for program, of in alive.items()
    }
    resident = {key: offset for key, offset in separate.offsets.items() if isinstance(key, str)}
    return Workspace(separate.size, separate.size, bound, offsets, resident)


def _owner(manifest: Manifest, program: str, key: BlockKey) -> str | ScratchKey:
    if isinstance(key, str):
        return key
    index, scratch = key
    return manifest.programs[program].dispatches[index].kernel, scratch
