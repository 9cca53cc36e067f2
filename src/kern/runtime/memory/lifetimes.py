"""Lifetimes: the first and the last launch of a program that uses a workspace buffer or a scratch."""

from __future__ import annotations

from dataclasses import dataclass

from kern.manifest.effects import effects
from kern.manifest.types import Manifest
from kern.runtime.memory.sizes import Sizes

BlockKey = str | tuple[int, str]
"""A buffer's name, or the index of a dispatch and the name of a scratch that lives during it."""


@dataclass(frozen=True, slots=True)
class Block:
    """`size` bytes that nothing else may use from launch `first` to launch `last` of a program, both included."""

    key: BlockKey
    size: int
    first: int
    last: int


def blocks(manifest: Manifest, program: str, sizes: Sizes) -> tuple[Block, ...]:
    """The blocks of a program that share the workspace arena.

    A buffer lives from its first access to its last: an `out` parameter may write only a part of it, so a later
    write does not end the life of its content. A scratch lives within each dispatch by itself; one that is kept
    between executions is not in this arena.
    """
    spans: dict[BlockKey, tuple[int, int, int]] = {}
    for number, launch in enumerate(effects(manifest, program)):
        for access in launch.accesses:
            key: BlockKey
            if access.kind == "buffer" and manifest.buffers[access.name].class_ == "workspace":
                key, size = access.name, sizes.buffers[access.name]
            elif access.kind == "scratch" and not manifest.kernels[launch.kernel].impl.scratch[access.name].keep:
                key, size = (launch.dispatch, access.name), sizes.scratch[launch.kernel, access.name]
            else:
                continue
            _, first, _ = spans.get(key, (size, number, number))
            spans[key] = size, first, number
    return tuple(Block(key, *span) for key, span in spans.items())
