"""A pass: one run of the whole program over some tokens, with its events."""

from __future__ import annotations

from dataclasses import dataclass

from kern.mining.blocks import Block
from kern.mining.events import Copy, Event, Launch


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass, with all that ran in it, in order.

    `tokens` is the value of the token-count reference, None where none was found. `block` is the
    part that it repeats; the blocks of passes of one `variant` launch the same kernels.
    """

    index: int
    tokens: int | None
    variant: int
    block: Block | None
    events: tuple[Event, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Its launches."""
        return tuple(event for event in self.events if isinstance(event, Launch))

    @property
    def copies(self) -> tuple[Copy, ...]:
        """Its copies."""
        return tuple(event for event in self.events if isinstance(event, Copy))

    @property
    def duration(self) -> int:
        """From its first event to its last, in ns on the host: the time to launch it, not to run it."""
        return self.events[-1].time - self.events[0].time

    def of(self, symbol: str) -> tuple[Launch, ...]:
        """Its launches of a symbol, in order."""
        return tuple(launch for launch in self.launches if launch.symbol == symbol)
