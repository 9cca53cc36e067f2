"""A recorded forward pass, taken apart: which launch is which part of which layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kern.manifest.counts import counted
from kern.mining import Launch
from kern.recorded.signatures import Signature, Value

Found: TypeAlias = tuple[Signature, Launch]
"""A launch of a kernel that is used."""


@dataclass(frozen=True, slots=True)
class Part:
    """A launch of every pass, or of every layer: its name, and the role of its kernel.

    `single`: it is launched in passes of one token only.
    """

    name: str
    role: str
    single: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A launch and its parameters by name. `part` says where it is in the pass, as `layer 3, k_norm`."""

    launch: Launch
    signature: Signature
    values: Mapping[str, Value]
    part: str
    index: int
    tokens: int

    def __getitem__(self, name: str) -> Value:
        """A parameter's value; an address is an integer."""
        return self.values[name]

    @property
    def where(self) -> str:
        """The launch, for a message."""
        return f"{self.part} (pass {self.index} of {counted(self.tokens, 'token')}, line {self.launch.line})"

    def shown(self, name: str) -> str:
        """A parameter and its value, for a message."""
        value = self[name]
        is_address = dict(self.signature.params)[name] is None
        return f"`{name}` = {f'{value:#x}' if is_address else value}"


@dataclass(frozen=True, slots=True)
class ParsedPass:
    """A forward pass over `tokens` tokens; `index` counts the passes of the recording from 0.

    `parts` has the launches of each part of the engine's table: one for each layer, one in all for a part before the
    layers, none for a part that such a pass does not launch.
    """

    index: int
    tokens: int
    parts: Mapping[str, tuple[Call, ...]]

    def calls(self) -> Iterator[Call]:
        """All launches that are looked at."""
        for calls in self.parts.values():
            yield from calls
