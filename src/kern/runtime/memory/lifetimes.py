"""From which step to which step of a program each workspace buffer and each scratch must stay put."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kern.manifest.types import Arg, BufferArg, Dispatch, Kernel, Manifest, ScratchArg
from kern.runtime.memory.sizes import Sizes

BlockKey = str | tuple[int, str]
"""A buffer's name, or the index of a dispatch and the name of a scratch that lives during it."""


@dataclass(frozen=True, slots=True)
class Block:
    """`size` bytes that nothing else may use from step `first` to step `last`, both included.

    Steps are counted through the whole program: every dispatch contributes the steps of its kernel.
    """

    key: BlockKey
    size: int
    first: int
    last: int


def blocks(manifest: Manifest, program: str, sizes: Sizes) -> tuple[Block, ...]:
    """The blocks of a program that share the workspace arena.

    A buffer lives from its first access to its last: an `out` parameter may write a part of it only, so a
    later write does not end the life of what was there. A scratch lives within each dispatch by itself,
    unless it is kept between executions (then it has a place of its own and is not listed here).
    """
    spans: dict[BlockKey, tuple[int, int]] = {}
    found: dict[BlockKey, int] = {}
    start = 0
    for index, dispatch in enumerate(manifest.programs[program].dispatches):
        kernel = manifest.kernels[dispatch.kernel]
        for step, key in _accesses(manifest, index, dispatch, kernel):
            first, _ = spans.get(key, (start + step, 0))
            spans[key] = (first, start + step)
            found[key] = sizes.buffers[key] if isinstance(key, str) else sizes.scratch[dispatch.kernel, key[1]]
        start += len(kernel.impl.steps)
    return tuple(Block(key, found[key], first, last) for key, (first, last) in spans.items())


def _accesses(manifest: Manifest, index: int, dispatch: Dispatch, kernel: Kernel) -> Iterator[tuple[int, BlockKey]]:
    for number, step in enumerate(kernel.impl.steps):
        for arg in step.args:
            if isinstance(arg, ScratchArg) and not kernel.impl.scratch[arg.scratch].keep:
                yield number, (index, arg.scratch)
            elif isinstance(arg, Arg):
                given = dispatch.args[arg.arg]
                if isinstance(given, BufferArg) and manifest.buffers[given.buf].class_ == "workspace":
                    yield number, given.buf
