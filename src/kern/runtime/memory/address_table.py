"""From the plan and the bases of the arenas to the address of everything that a program accesses."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass

from kern.manifest.counts import counted
from kern.manifest.effects import Access
from kern.manifest.types import Manifest, Program
from kern.runtime.errors import WrongSequence
from kern.runtime.memory.planner import MemoryPlan
from kern.runtime.symbols import as_integer


@dataclass(frozen=True, slots=True)
class Bases:
    """The address of each arena and of each weight."""

    weights: Mapping[str, int]
    states: int
    io: int
    workspace: int


@dataclass(frozen=True, slots=True)
class ProgramAddresses:
    """The addresses that one program uses. Scratch goes by dispatch index and name."""

    buffers: Mapping[str, int]
    states: Mapping[str, int]
    scratch: Mapping[tuple[int, str], int]

    def of(self, dispatch: int, access: Access) -> int:
        """The address of an access of dispatch number `dispatch`, or of one of its launches."""
        match access.kind:
            case "buffer":
                base = self.buffers[access.name]
            case "state":
                base = self.states[access.name]
            case "scratch":
                base = self.scratch[dispatch, access.name]
        return base + access.offset


def resident(plan: MemoryPlan, bases: Bases) -> dict[str, int]:
    """The buffers whose address never changes: all but workspace that shares memory."""
    fixed = {key: bases.io + offset for key, offset in plan.io.offsets.items() if isinstance(key, str)}
    own = {name: bases.workspace + offset for name, offset in plan.workspace.resident.items()}
    return {**bases.weights, **fixed, **own}


def states(plan: MemoryPlan, bases: Bases) -> dict[str, int]:
    """The states' addresses."""
    return {name: bases.states + offset for name, offset in plan.states.offsets.items()}


def block(manifest: Manifest, state: str, sequence: object, sequences: int) -> tuple[int, int]:
    """The offset of the block of `sequence` in a state, and its size. Raises WrongSequence."""
    size = manifest.states[state].bytes
    if size is None:
        raise WrongSequence(
            f"state {state!r} has bytes per token and no block for each sequence",
            "clear the whole state; which of its memory belongs to a sequence, only the caller knows",
        )
    index = as_integer(sequence)
    if index is None or not 0 <= index < sequences:
        raise WrongSequence(
            f"state {state!r} has {counted(sequences, 'block')}, one for each sequence, and none for {sequence!r:.60}",
            f"give an integer in 0…{sequences - 1}, or load for more sequences",
        )
    return index * size, size


def addresses(manifest: Manifest, plan: MemoryPlan, bases: Bases) -> dict[str, ProgramAddresses]:
    """The addresses for each program. What they share is stored once."""
    lasting, fixed = resident(plan, bases), states(plan, bases)
    return {name: _of_program(manifest, name, plan, bases, lasting, fixed) for name in manifest.programs}


def _of_program(
    manifest: Manifest,
    program: str,
    plan: MemoryPlan,
    bases: Bases,
    lasting: dict[str, int],
    fixed: dict[str, int],
) -> ProgramAddresses:
    planned = plan.workspace.offsets[program]
    buffers = {key: bases.workspace + offset for key, offset in planned.items() if isinstance(key, str)}
    scratch = {key: bases.workspace + offset for key, offset in planned.items() if not isinstance(key, str)}
    kept = _kept_scratch(manifest, manifest.programs[program], plan, bases)
    return ProgramAddresses(ChainMap(buffers, lasting), fixed, {**scratch, **kept})


def _kept_scratch(manifest: Manifest, program: Program, plan: MemoryPlan, bases: Bases) -> dict[tuple[int, str], int]:
    return {
        (index, name): bases.io + plan.io.offsets[dispatch.kernel, name]
        for index, dispatch in enumerate(program.dispatches)
        for name, scratch in manifest.kernels[dispatch.kernel].impl.scratch.items()
        if scratch.keep
    }
