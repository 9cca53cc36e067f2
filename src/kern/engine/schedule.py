"""Which sequences are in each call: admission, prompts in chunks, steps, and what happens if the pages run out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from kern.contracts.text import PAGE
from kern.engine.pages import PagePool

Kind: TypeAlias = Literal["prefill", "step", "decode"]

GROW: Final = 4
"""Pages that a sequence gets at once while many are free: each change of a table is a copy to the device."""


@dataclass(eq=False, slots=True)
class Member:
    """One sequence of a batch, and how far it is.

    `ids` are the prompt and the tokens that have been read; it ends at `end` of them. Calls that have been launched
    computed the state of the first `computed` ids, and chose ids up to `length`, of which the last may still be in
    flight. `fed` says that the last one is in its slot on the device. It was first admitted at the time `admitted`; if
    its prompt was computed apart from its first token, that was done at `filled`.
    """

    ids: list[int]
    end: int
    computed: int = 0
    length: int = 0
    fed: bool = False
    slot: int = -1
    pages: list[int] = field(default_factory=list)
    over: bool = False
    admitted: float = 0.0
    filled: float | None = None

    def __post_init__(self) -> None:
        self.length = len(self.ids)

    def next(self, id: int, program: str) -> Chosen:
        """Append an id that `program` chose."""
        self.ids.append(id)
        self.length = max(self.length, len(self.ids))
        return Chosen(self, len(self.ids) - 1, id, program)

    @property
    def decodes(self) -> bool:
        """Whether only the state of its last token is not computed."""
        return self.computed == self.length - 1


@dataclass(frozen=True, slots=True)
class Chosen:
    """Id number `index` of a member, which `program` chose."""

    member: Member
    index: int
    id: int
    program: str


@dataclass(frozen=True, slots=True)
class Part:
    """`count` rows of a call from position `start` of `member`; with `chosen`, the token after them is chosen.

    `fed`: the row's token is in the slot of the member on the device.
    """

    member: Member
    start: int
    count: int
    chosen: bool
    fed: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The next call. `decode` is run `ticks` times in succession."""

    kind: Kind
    parts: tuple[Part, ...]
    ticks: int = 1


class Schedule:
    """Decides on each call. Members are admitted in order as slots and pages become free.

    A running member gets pages as it grows. If none are free, the one admitted last loses its pages and waits; it is
    admitted again as soon as there is room, and its state is computed again from its ids. So a member never ends early
    because of others. The pool must have room for the longest member alone, or `plan` raises PoolExhausted.

    A slot and pages are given to another member at once: calls run in the order of their launch, so those of the former
    owner are over before the first one of the new owner.
    """

    def __init__(
        self,
        pool: PagePool,
        *,
        slots: int,
        chunk: int,
        rows: int,
        mixed: bool,
        ticks: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`slots` members run at once. A call has up to `chunk` rows of prompts, and `rows` rows in total.

        With `mixed`, one call can compute prompts, choose their first tokens and continue other members. `ticks` is
        the number of decode steps per plan, and may be changed between plans.
        """
        self.pool = pool
        self.waiting: deque[Member] = deque()
        self.running: list[Member] = []
        self._slots = list(reversed(range(slots)))
        self._chunk, self._rows, self._mixed, self.ticks = chunk, rows, mixed, ticks
        self.clock = clock
        self._filled = False

    def add(self, member: Member) -> None:
        """Let a member wait for its admission."""
        self.waiting.append(member)

    def end(self, member: Member) -> None:
        """No further call has a row of `member`; its slot and pages are free."""
        member.over = True
        if member in self.running:
            self._leave(member)
        elif member in self.waiting:
            self.waiting.remove(member)

    def plan(self) -> Plan | None:
        """The next call, which counts as launched; None if there is none before tokens in flight have been read.

        The tokens that a plan chooses must have been read, or their read requested, before the next plan.
        """
        for member in [each for each in self.running if each.length == each.end]:
            self._leave(member)
        self._admit()
        fills = [self._fills(each) for each in self.running]
        # Where a call has either prompts or steps, these take turns.
        self._filled = any(fills) and (self._mixed or all(fills) or not self._filled)
        return self._fill() if self._filled else self._step()

    def prefill(self) -> Plan | None:
        """The next call that computes prompts without their last tokens; None once those of all running members are.

        With it, members begin at the same time.
        """
        self._admit()
        parts, room = [], self._chunk
        for member in self.running:
            count = min(member.length - 1 - member.computed, room)
            if count:
                parts.append(_rows(member, count))
                room -= count
        return Plan("prefill", tuple(parts)) if parts else None

    def _fills(self, member: Member) -> bool:
        """Whether its next rows are known ids whose state is not computed, rather than a decode step."""
        return not member.fed if self._mixed else not member.decodes

    def _fill(self) -> Plan:
        """A call with rows of prompts, and a row of each member that decodes if both may be mixed."""
        if self._mixed:
            self._grow(1)
        steps = [each for each in self.running if self._mixed and not self._fills(each)]
        room = min(self._chunk, self._rows - len(steps))
        parts = []
        for member in self.running:
            if not self._fills(member):
                parts += [_step(member, 1)] if self._mixed else []
            elif room:
                known = member.length if self._mixed else member.length - 1
                parts.append(_rows(member, min(known - member.computed, room)))
                room -= parts[-1].count
        kind: Kind = "step" if any(part.chosen for part in parts) else "prefill"
        return Plan("decode" if len(steps) == len(parts) else kind, tuple(parts))

    def _step(self) -> Plan | None:
        steps = [each for each in self.running if not self._fills(each)]
        ticks = min([self.ticks, *(each.end - each.length for each in steps)])
        self._grow(ticks)
        parts = [_step(each, ticks) for each in self.running if not self._fills(each)]
        return Plan("decode", tuple(parts), ticks) if parts else None

    def _admit(self) -> None:
        """Admit members while there are slots, and pages for what they have and a page for each that runs."""
        while self.waiting and self._slots:
            member = self.waiting[0]
            needed, others = pages_of(member.length), len(self.running)
            if len(member.ids) < member.length or (others and self.pool.free < needed + others):
                return
            member.slot, member.pages = self._slots.pop(), self.pool.allocate(needed)
            member.admitted = member.admitted or self.clock()
            self.running.append(self.waiting.popleft())

    def _grow(self, ticks: int) -> None:
        """Give each member that decodes the pages of its next `ticks` steps; those admitted last may lose theirs."""
        for member in tuple(self.running):
            needed = pages_of(member.computed + ticks) - len(member.pages)
            if member.slot < 0 or self._fills(member) or needed <= 0:
                continue
            while needed > self.pool.free and member.slot >= 0 and len(self.running) > 1:
                self._preempt(self.running[-1])
            if member.slot >= 0:
                ahead = min(GROW, pages_of(member.end - 1) - len(member.pages))
                many = self.pool.free >= len(self.running) * GROW
                member.pages += self.pool.allocate(max(needed, ahead if many else 0))

    def _preempt(self, member: Member) -> None:
        self._leave(member)
        member.computed, member.fed = 0, False
        self.waiting.appendleft(member)

    def _leave(self, member: Member) -> None:
        self.running.remove(member)
        self.pool.release(member.pages)
        self._slots.append(member.slot)
        member.slot, member.pages = -1, []


def pages_of(tokens: int) -> int:
    """The pages that the state of `tokens` tokens takes."""
    return -(-tokens // PAGE)


def _rows(member: Member, count: int) -> Part:
    """The next `count` rows of known ids; the token after the last known id is chosen."""
    start = member.computed
    member.computed += count
    chosen = member.computed == member.length
    member.length += chosen
    member.fed = member.fed or chosen
    return Part(member, start, count, chosen, fed=False)


def _step(member: Member, ticks: int) -> Part:
    """The next `ticks` steps."""
    part = Part(member, member.computed, 1, chosen=True, fed=member.fed)
    member.computed += ticks
    member.length += ticks
    member.fed = True
    return part
