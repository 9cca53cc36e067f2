"""Implementing an entry: a kernel whose steps take the entry's parameters and its scratch by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from kern.kernels.interfaces import INTERFACES, Interface
from kern.manifest.expressions import Expr
from kern.manifest.params import Direction, Param
from kern.manifest.types import I32, Arg, Impl, Kernel, Scratch, ScratchArg, Step, StepArg

Grid: TypeAlias = tuple[Expr, Expr, Expr]

ARGMAX_PARTS: Final = 64
"""The parts of a row whose maxima are found in parallel."""
ARGMAX_FIND: Final = ("out best", "out index", "logits", "vocabulary")
"""What the step takes that finds the maximum of each part."""
ARGMAX_CHOOSE: Final = ("next", "in best", "in index")
"""What the step takes that finds the maximum of all parts; their number follows, and the distance of results."""
ADD_FIND: Final = ("out best", "out index", "logits", "delta", "vocabulary", "rows")
"""What the step takes that finds the maximum of each part of a sum."""
FEEDBACK: Final = ("begin", "lay_rows", "advance", "lay_tokens", "keep_tokens")
"""The entries that keep and read what is in the slots of sequences."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry to implement, and the scratch that its steps share."""

    name: str
    scratch: Mapping[str, Scratch] = field(default_factory=dict)

    @property
    def interface(self) -> Interface:
        """Its parameters. Raises KeyError for an unknown entry."""
        return INTERFACES[self.name]

    def bind(self, names: Iterable[str]) -> tuple[tuple[Param, ...], tuple[StepArg, ...]]:
        """A step's parameters, and its arguments: parameters of the entry by name.

        `out best` is scratch that the step writes, `in best` scratch that it reads, `64` an i32.
        Raises KeyError for a name that the entry does not have.
        """
        order = {name: index for index, name in enumerate(self.interface)}
        bound: list[tuple[Param, StepArg]] = []
        for name in names:
            direction, _, local = name.rpartition(" ")
            if direction:
                param = Param(direction=cast(Direction, direction), dtype=self.scratch[local].dtype)
                bound.append((param, ScratchArg(scratch=local)))
            elif name.isdigit():
                bound.append((Param(scalar="i32"), I32(i32=int(name))))
            else:
                bound.append((self.interface[name], Arg(arg=order[name])))
        return tuple(param for param, _ in bound), tuple(arg for _, arg in bound)

    def kernel(self, *steps: Step) -> Kernel:
        """The entry as these steps."""
        return Kernel(params=tuple(self.interface.values()), impl=Impl(scratch=self.scratch, steps=steps))


def argmax_entry(name: str, *shape: Expr) -> Entry:
    """An entry with scratch for the maximum of each part, and its index."""
    return Entry(name, {"best": Scratch(dtype="f32", shape=shape), "index": Scratch(dtype="i32", shape=shape)})
