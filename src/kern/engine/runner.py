"""Token ids in, token ids out: chunked prefill and decoding with an executable that satisfies the text contract."""

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
    """Runs one sequence at a time: `prefill` starts a text, `decode` continues it."""

    def __init__(
        self,
        executable: Executable,
        settings: TextSettings,
        *,
        chunk: int | None = None,
        eager: bool = False,
        spec: bool = False,
    ) -> None:
        """`chunk` is the maximum number of tokens per prefill call: 512 by default, or the program's limit if lower.

        `graphs` lists the calls that were recorded as graphs, by program and tokens; with `eager`, none. With `spec`,
        the manifest's draft model proposes tokens, which changes the speed only; `rows` is the maximum number of tokens
        per round, 1 without. Raises ContractError and PromptError.
        """
        check_generation(executable.manifest, settings)
        self.executable, self.settings, self.spec = executable, settings, spec
        self.rows = check_speculation(executable.manifest, settings) if spec else 1
        self.sequence = PagedSequence(executable, settings)
        most = self.sequence.most_tokens("prefill")
        self._chunk = min(CHUNK, most) if chunk is None else as_integer(chunk) or 0
        if not 1 <= self._chunk <= most:
            raise PromptError(f"the chunk is {chunk!r} tokens", f"give 1 to {most}, the limit of program prefill")
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
        """The maximum number of tokens of a prompt and its continuation, without the last one, which needs no state."""
        return self.sequence.capacity

    def prefill(self, ids: Sequence[int], reused: int = 0) -> int:
        """Start a text: compute the state of `ids` after the first `reused`, and return the text's number.

        A full chunk replays a graph, the rest runs eagerly. Any text that was in progress in the executable is lost.
        """
        number = self.sequence.begin()
        for start in range(reused, len(ids), self._chunk):
            chunk = ids[start : start + self._chunk]
            self.sequence.write_inputs(chunk, start)
            self.sequence.run(("prefill", len(chunk)))
        self.executable.synchronize()
        return number

    def decode(self, text: int, token: int, position: int, steps: int, accepted: list[int]) -> Iterator[int]:
        """The `steps` ids after `token` at `position` of text number `text`.

        The number of draft tokens that each round accepts is appended to `accepted`. Raises UnusableLogits if no token
        can be chosen, Superseded if another text has been started in the executable, and ContractError for an id that
        is not in the vocabulary.
        """
        ids, vocabulary = self._ids(token, position, steps, accepted), self.settings.vocabulary
        for _ in range(steps):
            self.sequence.require(text)
            id = next(ids)
            if not 0 <= id < vocabulary:
                raise ContractError(
                    f"the device chose the token id {id}; ids are 0…{vocabulary - 1}",
                    "check the kernels that choose a token, or build the folder again",
                )
            yield id

    def _ids(self, token: int, position: int, steps: int, accepted: list[int]) -> Iterator[int]:
        if self.spec:
            return speculate(self.sequence, self.rows, token, position, steps, accepted)
        return decode(self.sequence, token, position, steps)
