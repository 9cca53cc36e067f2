"""The memory plan: which arenas a manifest needs, how large, and what stands where in them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kern.manifest.arrays import ALIGNMENT, round_up
from kern.manifest.errors import KernError, variant
from kern.manifest.types import Manifest
from kern.runtime.memory.arena import pairs, peak, place
from kern.runtime.memory.lifetimes import BlockKey, blocks
from kern.runtime.memory.sizes import ScratchKey, Sizes, sizes
from kern.verifier import VerifiedManifest

Key = TypeVar("Key", bound=Hashable)


MAX_PAIRS: Final = 2**22
"""Most pairs of workspace blocks alive at once that are planned, over all programs; a large model has thousands."""


TooManyBlocks = variant(KernError, "too-many-blocks", "Too many buffers are alive at once to plan their memory.")


@dataclass(frozen=True, slots=True)
class Arena(Generic[Key]):
    """`size` bytes whose base is a multiple of `alignment`, and where things start in them, in bytes."""

    size: int
    alignment: int
    offsets: Mapping[Key, int]

    @property
    def allocation(self) -> int:
        """Bytes to ask of a device, which promises multiples of ALIGNMENT only."""
        return self.size + self.alignment - ALIGNMENT if self.size else 0


@dataclass(frozen=True, slots=True)
class Workspace:
    """The arena that all programs share, since nothing in it is kept between executions.

    `size` is what is allocated; `unshared` what it would be if every buffer and scratch had bytes of its
    own; `lower_bound` the most bytes alive at one step of any program, which no plan can undercut. `offsets`
    places, program by program, each buffer and each scratch of a dispatch. `resident` holds the buffers
    that have bytes of their own: all of them where sharing is off, none otherwise.
    """

    size: int
    unshared: int
    lower_bound: int
    offsets: Mapping[str, Mapping[BlockKey, int]]
    resident: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes by class, every start a multiple of 256 bytes at least.

    `weights` is the sum of the weights' bytes, `states` and `io` (inputs, outputs, carries and kept scratch)
    keep their places for life, and `workspace` is planned by lifetime.
    """

    sizes: Sizes
    sharing: bool
    weights: int
    states: Arena[str]
    io: Arena[str | ScratchKey]
    workspace: Workspace

    @property
    def allocated(self) -> int:
        """Bytes that loading allocates besides the weights, which some devices use in place."""
        return self.states.allocation + self.io.allocation + self.workspace.size


def plan(verified: VerifiedManifest, *, capacity: int = 4096, sequences: int = 1, sharing: bool = True) -> MemoryPlan:
    """Plan the memory of a manifest; needs neither its files nor a device.

    `capacity` counts the tokens of one sequence; see `sizes` for what a state takes. With `sharing` off,
    every workspace buffer and every scratch has bytes of its own. Raises BadCapacity,
    TooManyBlocks.
    """
    manifest = verified.manifest
    reserved = sizes(verified, capacity, sequences)
    weights = [reserved.buffers[name] for name, buffer in manifest.buffers.items() if buffer.class_ == "weight"]
    return MemoryPlan(
        reserved,
        sharing,
        sum(round_up(size) for size in weights),
        _side_by_side((name, reserved.states[name], state.align) for name, state in manifest.states.items()),
        _side_by_side(_io(manifest, reserved)),
        _workspace(manifest, reserved, sharing),
    )


def _side_by_side(items: Iterable[tuple[Key, int, int]]) -> Arena[Key]:
    """Everything in order, each (key, size, alignment) at the next multiple of its alignment."""
    offsets, end, most = {}, 0, ALIGNMENT
    for key, size, alignment in items:
        alignment = max(alignment, ALIGNMENT)
        most = max(most, alignment)
        offsets[key] = round_up(end, alignment)
        end = offsets[key] + size
    return Arena(round_up(end), most, offsets)


def _io(manifest: Manifest, reserved: Sizes) -> Iterable[tuple[str | ScratchKey, int, int]]:
    for name, buffer in manifest.buffers.items():
        if buffer.class_ in ("input", "output", "carry"):
            yield name, reserved.buffers[name], ALIGNMENT
    for kernel, entry in manifest.kernels.items():
        for name, scratch in entry.impl.scratch.items():
            if scratch.keep:
                yield (kernel, name), reserved.scratch[kernel, name], ALIGNMENT


def _workspace(manifest: Manifest, reserved: Sizes, sharing: bool) -> Workspace:
    alive = {program: blocks(manifest, program, reserved) for program in manifest.programs}
    if (together := sum(map(pairs, alive.values()))) > MAX_PAIRS:
        raise TooManyBlocks(
            f"{together:,} pairs of workspace buffers and scratch are alive at once, more than the {MAX_PAIRS:,} that "
            "are planned",
            "use fewer of them, or end their use sooner",
        )
    apart = _side_by_side(_own(manifest, reserved))
    bound = max(peak(of) for of in alive.values())
    if sharing:
        placed = {program: place(of) for program, of in alive.items()}
        size = max(offsets.size for offsets in placed.values())
        return Workspace(size, apart.size, bound, {program: p.of for program, p in placed.items()}, {})
    offsets = {
        program: {block.key: apart.offsets[_owner(manifest, program, block.key)] for block in of}
        for program, of in alive.items()
    }
    resident = {key: offset for key, offset in apart.offsets.items() if isinstance(key, str)}
    return Workspace(apart.size, apart.size, bound, offsets, resident)


def _own(manifest: Manifest, reserved: Sizes) -> Iterable[tuple[str | ScratchKey, int, int]]:
    for name, buffer in manifest.buffers.items():
        if buffer.class_ == "workspace":
            yield name, reserved.buffers[name], ALIGNMENT
    for kernel, entry in manifest.kernels.items():
        for name, scratch in entry.impl.scratch.items():
            if not scratch.keep:
                yield (kernel, name), reserved.scratch[kernel, name], ALIGNMENT


def _owner(manifest: Manifest, program: str, key: BlockKey) -> str | ScratchKey:
    if isinstance(key, str):
        return key
    index, scratch = key
    return manifest.programs[program].dispatches[index].kernel, scratch
