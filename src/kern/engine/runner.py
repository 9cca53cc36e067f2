"""Token ids in, token ids out: schedules of calls of an executable that satisfies the text contract."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kern.contracts.text import TextSettings, round_calls
from kern.contracts.text_checks import check_batches, check_generation, check_speculation
from kern.engine.calls import Rows, SizedCall
from kern.engine.decoding import decode, steps_per_read
from kern.engine.pages import PagePool
from kern.engine.schedule import Chosen, Schedule
from kern.engine.sequence import PagedSequence, PromptError
from kern.engine.speculation import speculate
from kern.runtime.executable import Executable
from kern.runtime.symbols import as_integer

CHUNK: Final = 512
"""Most tokens of prompts in one call where the program takes as many."""


class Runner:
    """Runs the sequences of one batch at a time."""

    def __init__(
        self,
        executable: Executable,
        settings: TextSettings,
        *,
        chunk: int | None = None,
        eager: bool = False,
        spec: bool = False,
    ) -> None:
        """`chunk` is the maximum number of prompt tokens per call: 512 by default, or the program's limit if lower.

        `graphs` lists the calls that were recorded as graphs, by program and tokens; with `eager`, none. Steps of more
        than one sequence are recorded when they are first run. With `spec`, the manifest's draft model proposes tokens,
        which changes the speed only; `rows` is the maximum number of tokens per round, 1 without. `mixed` says that one
        call can compute prompts, choose their first tokens and continue other sequences. Raises ContractError and
        PromptError.
        """
        check_generation(executable.manifest, settings)
        self.executable, self.settings, self.spec = executable, settings, spec
        self.rows = check_speculation(executable.manifest, settings) if spec else 1
        self.mixed = {"begin", "step"} <= executable.manifest.programs.keys()
        self.sequence = PagedSequence(executable, settings, slots=self._slots(), eager=eager)
        self.calls = self.sequence.calls
        self._most = min(map(self.calls.most_tokens, ("prefill", "step") if self.mixed else ("prefill",)))
        self._chunk = min(CHUNK, self._most) if chunk is None else as_integer(chunk) or 0
        if not 1 <= self._chunk <= self._most:
            raise PromptError(f"the chunk is {chunk!r} tokens", f"give 1 to {self._most}, the limit of program prefill")
        recorded: dict[tuple[str, int], tuple[SizedCall, ...]] = {}
        if not eager:
            recorded["prefill", self._chunk] = (self.calls.sized("prefill", self._chunk),)
            recorded["decode", 1] = (self.calls.step_of(1),)
        for calls in recorded.values():
            self.calls.record(*calls)
        self.graphs = tuple(recorded)
        if spec and not eager:
            self.sequence.record(*round_calls(self.rows))
            self.graphs += (("round", self.rows),)

    @property
    def capacity(self) -> int:
        """The maximum number of tokens of a prompt and its continuation, without the last one, which needs no state."""
        return self.calls.capacity

    def _slots(self) -> int:
        """The sequences that may run at once. Raises ContractError if the programs for several are not usable."""
        slots = check_batches(self.executable.manifest, self.settings) if self.mixed else 1
        per_sequence = any(state.bytes is not None for state in self.executable.manifest.states.values())
        return min(slots, self.executable.sequences) if per_sequence else slots

    def schedule(self, clock: Callable[[], float] = time.perf_counter) -> Schedule:
        """A schedule of calls in the whole pool, for one batch."""
        return Schedule(
            PagePool(self.calls.pages),
            slots=self.calls.slots,
            chunk=self._chunk,
            rows=self._most,
            mixed=self.mixed,
            ticks=steps_per_read(self.executable) if self.calls.ahead else 1,
            clock=clock,
        )

    def tokens(self, schedule: Schedule, accepted: list[int]) -> Iterator[Chosen]:
        """The tokens of the members that wait in `schedule`, as they arrive; one member only with speculation.

        The number of draft tokens that each round accepts is appended to `accepted`.
        """
        if self.spec:
            (member,) = schedule.waiting
            self.fill(member.ids[:-1], member.computed)
            member.computed, member.filled = len(member.ids) - 1, schedule.clock()
            yield from speculate(self.sequence, self.rows, member, accepted)
        yield from decode(self.calls, schedule)

    def prefill_all(self, schedule: Schedule) -> None:
        """Compute the prompts that wait in `schedule`, as many as there is room for, without their last tokens."""
        while plan := schedule.prefill():
            self.calls.launch(plan)

    def prefill(self, ids: Sequence[int]) -> int:
        """Start a text, compute the state of `ids`, and return the text's number. Any text in progress is lost."""
        number = self.calls.begin()
        self.fill(ids)
        return number

    def fill(self, ids: Sequence[int], start: int = 0) -> None:
        """Compute the state of `ids` from position `start` on, of the only sequence of a text, and wait.

        A full chunk replays a graph, the rest runs eagerly.
        """
        for at in range(start, len(ids), self._chunk):
            self.calls.run_rows("prefill", [Rows(ids[at : at + self._chunk], at, self.sequence.pages)])
        self.executable.synchronize()
