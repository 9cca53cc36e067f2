"""Token ids in, token ids out: chunked prefill and decoding with an executable that keeps the text contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kern.contracts.text import ContractError, TextSettings, round_calls
from kern.contracts.text_checks import check_generation, check_speculation
from kern.engine.decoding import decode
from kern.engine.sequence import PagedSequence, PromptError, SizedCall
from kern.engine.speculation import speculate
from kern.runtime.executable import Executable
from kern.runtime.symbols import as_integer

CHUNK: Final = 512
"""Most tokens of a prefill call where the program takes as many."""


class Runner:
    """Runs one sequence at a time: `prefill` begins a text, `decode` continues it."""

    def __init__(
        self,
        executable: Executable,
        settings: TextSettings,
        *,
        chunk: int | None = None,
        eager: bool = False,
        spec: bool = False,
    ) -> None:
        """`chunk` is the most tokens a prefill call takes; None: 512, or what the program takes where that is less.

        `graphs` says what was recorded as a graph, program and tokens; with `eager`, nothing is. With `spec`, the
        manifest's draft model proposes tokens, which changes nothing but the speed; `rows` is the most tokens that a
        round gives, 1 without. Raises ContractError and PromptError.
        """
        check_generation(executable.manifest, settings)
        self.executable, self.settings, self.spec = executable, settings, spec
        self.rows = check_speculation(executable.manifest, settings) if spec else 1
        self.sequence = PagedSequence(executable, settings)
        most = self.sequence.most_tokens("prefill")
        self._chunk = min(CHUNK, most) if chunk is None else as_integer(chunk) or 0
        if not 1 <= self._chunk <= most:
            raise PromptError(f"the chunk is {chunk!r} tokens", f"give 1 to {most}, as many as program prefill takes")
        recorded: dict[SizedCall, tuple[SizedCall, ...]] = {}
        if not eager:
            recorded = {call: (call,) for call in (("prefill", self._chunk), ("decode", 1))}
            if spec:
                recorded["round", self.rows] = round_calls(self.rows)
        for calls in recorded.values():
            self.sequence.record(*calls)
        self.graphs = tuple(recorded)

    @property
    def capacity(self) -> int:
        """Tokens that a prompt and what follows it may have; the very last token needs no room."""
        return self.sequence.capacity

    def prefill(self, ids: Sequence[int], reused: int = 0) -> int:
        """Begin a text with the state of `ids`, and give its number; the first `reused` have theirs already.

        A full chunk replays a graph, the rest runs eagerly. What was under way in the executable is superseded.
        """
        number = self.sequence.begin()
        for start in range(reused, len(ids), self._chunk):
            chunk = ids[start : start + self._chunk]
            self.sequence.place(chunk, start)
            self.sequence.run(("prefill", len(chunk)))
        self.executable.synchronize()
        return number

    def decode(self, text: int, token: int, position: int, steps: int, accepted: list[int]) -> Iterator[int]:
        """The `steps` ids after `token` at `position` of the text of that number; its state is computed first.

        The drafts that each round accepts are appended to `accepted`. Raises UnusableLogits where no token can be
        chosen, Superseded where another text has been begun in the executable by then, and ContractError for an id
        that the vocabulary does not have.
        """
        ids, vocabulary = self._ids(token, position, steps, accepted), self.settings.vocabulary
        for _ in range(steps):
            self.sequence.require(text)
            id = next(ids)
            if not 0 <= id < vocabulary:
                raise ContractError(
                    f"the device chose the token id {id}, and ids are 0…{vocabulary - 1}",
                    "look at the kernels that choose a token, or build the folder again",
                )
            yield id

    def _ids(self, token: int, position: int, steps: int, accepted: list[int]) -> Iterator[int]:
        if self.spec:
            return speculate(self.sequence, self.rows, token, position, steps, accepted)
        return decode(self.sequence, token, position, steps)
