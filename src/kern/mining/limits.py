"""Limits on what is read of a recording, over all of its processes: small files can expand to large data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kern.manifest.counts import counted

MAX_BYTES: Final = 2**29
"""Bytes of launches.jsonl."""
MAX_LINE: Final = 2**23
"""Bytes of one line."""
MAX_EVENTS: Final = 2**19
"""Launches, copies and fills. A graph's nodes count at each of its launches: they are what is analysed."""
MAX_PARTS: Final = 2**22
"""Parameters and addresses of these events, and everything that is listed with them: nodes, kernels, losses."""


class Excess(Exception):
    """A recording is larger than a limit, which the message names."""


@dataclass
class Budget:
    """What may still be read of a recording."""

    bytes: int = MAX_BYTES
    events: int = MAX_EVENTS
    parts: int = MAX_PARTS

    def take_bytes(self, count: int) -> None:
        """Raises Excess."""
        self.bytes -= count
        if self.bytes < 0:
            raise Excess(f"{counted(MAX_BYTES, 'byte')} of launches")

    def take(self, events: int, parts: int) -> None:
        """Events with so many parts in all. Raises Excess."""
        self.events -= events
        self.parts -= parts
        if self.events < 0:
            raise Excess(f"{counted(MAX_EVENTS, 'event')}, a graph's nodes counted at each launch of the graph")
        if self.parts < 0:
            raise Excess(f"{counted(MAX_PARTS, 'parameter')}, addresses and entries of lists counted in")
