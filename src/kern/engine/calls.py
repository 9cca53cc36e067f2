"""Calls of an executable's programs over rows of several sequences: their inputs, buckets and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kern.contracts.text import (
    DECODING,
    PAGE,
    PAGES,
    SEQS,
    TOKENS,
    TextSettings,
    decoding_program,
    row_buckets,
    token_buckets,
)
from kern.engine.choices import NO_TOKEN
from kern.engine.decoding import Ring
from kern.engine.schedule import Plan, pages_of
from kern.manifest.errors import KernError, variant
from kern.manifest.references import symbol_range
from kern.runtime.arrays import Array
from kern.runtime.executable import Executable
from kern.runtime.graph import ExecutableGraph
from kern.runtime.stepping import LaunchTime

Superseded = variant(KernError, "superseded", "Another sequence has overwritten this one's state in the executable.")

SizedCall: TypeAlias = tuple[str, int, int]
"""A program, and the tokens and sequences that it is called with."""
NO_SLOT: Final = -1
"""The slot of a padding row, and the place of its state: it writes nothing that persists."""

_TEXTS: Final[WeakKeyDictionary[Executable, int]] = WeakKeyDictionary()
"""The number of texts that have been started in each executable."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one sequence in a call, from position `start` on; with `chosen`, the token after them is chosen.

    `ids` are theirs, NO_TOKEN for the token that is in the slot. `pages` are those of the whole sequence.
    """

    ids: Sequence[int]
    start: int
    pages: list[int]
    slot: int = 0
    chosen: bool = False

    @property
    def end(self) -> int:
        """The position after them."""
        return self.start + len(self.ids)

    def places(self) -> list[int]:
        """The place of each row's state."""
        return [self.pages[at // PAGE] * PAGE + at % PAGE for at in range(self.start, self.end)]


class _OneToken:
    """The token that a step of one sequence chose, as the ring of one slot."""

    def __init__(self, executable: Executable) -> None:
        self._read = executable.read_async("next_token", {SEQS.sym: 1})

    def done(self) -> bool:
        return self._read.done()

    def wait(self) -> Array:
        return self._read.wait().reshape(1, 1)


class Calls:
    """Calls on the state of an executable, which belongs to one text or batch at a time, the last one started.

    `capacity` is the number of tokens of one sequence whose state fits: the executable's capacity, or the pool or the
    model's positions if these are fewer. With `ahead`, the device takes each token from the call that chose it;
    without, the host has to read it first.
    """

    def __init__(self, executable: Executable, settings: TextSettings, *, slots: int = 1, eager: bool = False) -> None:
        """`settings` must have been checked against the executable's manifest, as must `slots`, the most sequences.

        With `eager`, no graphs are recorded.
        """
        self.executable, self.slots = executable, slots
        self.pages = executable.pool_tokens // PAGE
        self.capacity = min(executable.capacity, settings.positions, self.pages * PAGE)
        self.ahead = "begin" in executable.manifest.programs
        self._width = pages_of(self.capacity)
        self._eager = eager
        self._padded = executable.device.asynchronous
        self._graphs: dict[tuple[SizedCall, ...], ExecutableGraph] = {}
        self._slots: list[int] = []
        self._starts: list[int] = []
        self._tables: list[tuple[list[int], int]] = []

    def begin(self) -> int:
        """Start a new text in the state, and return its number."""
        number = _TEXTS.get(self.executable, 0) + 1
        _TEXTS[self.executable] = number
        self._slots, self._starts, self._tables = [], [], []
        return number

    def holds(self, text: int) -> bool:
        """Whether the text of this number is the last one started."""
        return _TEXTS.get(self.executable) == text

    def require(self, text: int) -> None:
        """Raises Superseded if another text has been started since the one of this number."""
        if not self.holds(text):
            raise Superseded(
                "another text has overwritten the state of this one", "finish a text before starting the next one"
            )

    def most_tokens(self, program: str) -> int:
        """The maximum number of tokens per call of `program`."""
        return symbol_range(self.executable.manifest, program, TOKENS.sym)[1]

    def most_sequences(self, program: str) -> int:
        """The maximum number of sequences per call of `program`."""
        return symbol_range(self.executable.manifest, program, SEQS.sym)[1]

    def launch(self, plan: Plan) -> str:
        """Launch a plan of a schedule; returns the program that chooses its tokens."""
        if plan.kind == "decode":
            return self._step(plan)
        rows = [
            Rows(
                [NO_TOKEN] if part.fed else part.member.ids[part.start : part.start + part.count],
                part.start, part.member.pages, part.member.slot, part.chosen,
            )
            for part in plan.parts
        ]  # fmt: skip
        self.run_rows(plan.kind, rows)
        return plan.kind

    def read(self) -> Ring:
        """Request the token ring, i64 [slots, R]; where the host passes tokens on, the only one that was chosen."""
        return self.executable.read_async("token_ring") if self.ahead else _OneToken(self.executable)

    def write(self, call: SizedCall, rows: Sequence[Rows]) -> None:
        """Write the inputs of a call over `rows`; what it has room for beyond them is padding."""
        _, tokens, seqs = call
        count = sum(len(each.ids) for each in rows)
        ids, positions = np.zeros(tokens, np.int64), np.zeros(tokens, np.int64)
        places = np.full(tokens, NO_SLOT, np.int64)
        starts, lengths = np.full(seqs + 1, count, np.int32), np.zeros(seqs, np.int32)
        wanted = np.full(seqs, -1, np.int64)
        at = 0
        for row, each in enumerate(rows):
            end = at + len(each.ids)
            ids[at:end], positions[at:end], places[at:end] = each.ids, range(each.start, each.end), each.places()
            starts[row], lengths[row] = at, each.end
            if each.chosen:
                wanted[row] = end - 1
            at = end
        values = self.values(tokens, seqs)
        inputs: dict[str, NDArray[np.integer]] = {"token_ids": ids, "positions": positions, "slot_mapping": places}
        inputs |= {"cu_seqlens_q": starts, "seq_lens": lengths}
        if "logits_rows" in self.executable.manifest.buffers:
            inputs["logits_rows"] = wanted
        for name, array in inputs.items():
            self.executable.write(name, array, values)
        self._starts = starts.tolist()
        self._write_rows([each.slot for each in rows], [each.pages for each in rows], seqs)

    def record(self, *calls: SizedCall) -> None:
        """From now on, `run` of these calls replays a graph."""
        self._graphs[calls] = self.recorded(*calls)

    def recorded(self, *calls: SizedCall) -> ExecutableGraph:
        """A graph that runs these calls on the current inputs."""
        return self.executable.graph([(program, self.values(*sizes)) for program, *sizes in calls])

    def run(self, *calls: SizedCall) -> None:
        """Run these calls, in order, on the current inputs. The programs of steps are recorded when first run."""
        if calls not in self._graphs and not self._eager and len(calls) == 1 and calls[0][0] in DECODING:
            self.record(*calls)
        graph = self._graphs.get(calls)
        if graph is not None:
            graph.launch()
            return
        for program, *sizes in calls:
            self.executable.run(program, self.values(*sizes))

    def run_rows(self, program: str, rows: Sequence[Rows]) -> SizedCall:
        """Run `program` over `rows`; returns the call."""
        call = self.sized(program, sum(len(each.ids) for each in rows), len(rows))
        self.write(call, rows)
        self.run(call)
        return call

    def profile(self, call: SizedCall) -> tuple[LaunchTime, ...]:
        """Run a call on the current inputs, and wait; the time of each launch."""
        program, *sizes = call
        return self.executable.profile(program, self.values(*sizes))

    def values(self, tokens: int, seqs: int) -> dict[str, int]:
        """The symbol values of a call."""
        return {TOKENS.sym: tokens, SEQS.sym: seqs, PAGES.sym: self._width}

    def sized(self, program: str, tokens: int, seqs: int = 1) -> SizedCall:
        """A call of `program` for so many tokens and sequences: both padded where the device runs ahead of the host.

        Each new size costs milliseconds, to which a GPU would wait; rows of padding cost it little.
        """
        if not self._padded:
            return program, tokens, seqs
        most_tokens, most_seqs = self.most_tokens(program), self.most_sequences(program)
        return program, bucket(token_buckets(most_tokens), tokens), bucket(row_buckets(most_seqs), seqs)

    def step_of(self, rows: int) -> SizedCall:
        """The call of one step of `rows` sequences."""
        seqs = bucket(row_buckets(self.slots), rows) if self._padded else rows
        program = decoding_program(self.executable.manifest, seqs)
        assert program is not None
        return program, seqs, seqs

    def _step(self, plan: Plan) -> str:
        if not self.ahead:
            (part,) = plan.parts
            return self.run_rows("decode", [Rows(part.member.ids[-1:], part.start, part.member.pages)])[0]
        new = [part for part in plan.parts if not part.fed]
        if new:
            rows = [Rows(each.member.ids[-1:], each.start, each.member.pages, each.member.slot) for each in new]
            self.run_rows("begin", rows)
        call = self.step_of(len(plan.parts))
        starts = list(range(call[2] + 1))
        if starts != self._starts:
            # Recorded kernels read it in a step, too.
            self.executable.write("cu_seqlens_q", np.array(starts, np.int32), self.values(*call[1:]))
            self._starts = starts
        members = [part.member for part in plan.parts]
        self._write_rows([each.slot for each in members], [each.pages for each in members], call[2])
        for _ in range(plan.ticks):
            self.run(call)
        return call[0]

    def _write_rows(self, slots: Sequence[int], pages: Sequence[list[int]], seqs: int) -> None:
        """Write the slots and page tables of rows that differ from those of the call before."""
        values = self.values(seqs, seqs)
        padded = [*slots, *[NO_SLOT] * (seqs - len(slots))]
        if padded != self._slots and self.ahead:
            self.executable.write("row_slots", np.array(padded, np.int32), values)
            self._slots = padded
        tables = [(each, len(each)) for each in pages]
        before = [*self._tables, *[None] * len(tables)]
        # A sequence gets a new list each time that it is admitted, and only appends to it.
        pairs = zip(before, tables, strict=False)
        same = [old is not None and old[0] is new[0] and old[1] == new[1] for old, new in pairs]
        if not all(same):
            first, last = same.index(False), len(same) - 1 - same[::-1].index(False)
            table = np.zeros((last + 1 - first, self._width), np.int32)
            for row, each in enumerate(pages[first : last + 1]):
                table[row, : len(each)] = each
            self.executable.write("block_table", table, values, at=first)
        self._tables = tables


def bucket(buckets: Sequence[int], count: int) -> int:
    """The first bucket that holds `count`."""
    return next(each for each in buckets if each >= count)
