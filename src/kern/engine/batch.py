"""A batch: generations of several prompts at once, each as if it were alone."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from kern.contracts.text import ContractError
from kern.engine.choices import chosen
from kern.engine.generation import Generation, Token
from kern.engine.schedule import Chosen, Member
from kern.manifest.errors import KernError

if TYPE_CHECKING:
    from kern.engine.runner import Runner


class Batch:
    """Generations in progress: an iterator over (index of the prompt, token) in the order in which tokens arrive.

    `generations` are those of the prompts, in their order. More prompts than there is room for wait, and join as others
    end. An error of one sequence ends that one alone, and is its `error`; it is raised when all others have ended.
    """

    def __init__(
        self,
        runner: Runner,
        generations: Sequence[Generation],
        after: Generation | None = None,
        *,
        together: bool = False,
    ) -> None:
        """The only generation may reuse the state of one `after` which it comes.

        With `together`, the first tokens come when all prompts are computed, as a measurement of steps needs it.
        """
        self.generations = tuple(generations)
        self._runner, self._after, self._together = runner, after, together
        self._clock = _Clock()
        self._schedule = runner.schedule(self._clock.elapsed)
        self._steps = [each.steps(runner.capacity) for each in self.generations]
        self._members = [
            Member(list(each.prompt_ids), len(each.prompt_ids) + steps)
            for each, steps in zip(self.generations, self._steps, strict=True)
        ]
        self._tokens = self._run()
        for index, each in enumerate(self.generations):
            each.follow(self._tokens, index)

    def __iter__(self) -> Iterator[tuple[int, Token]]:
        return self

    def __next__(self) -> tuple[int, Token]:
        return next(self._tokens)

    def cancel(self, index: int) -> None:
        """End the generation of one prompt where it is; its `stop` stays None."""
        self._schedule.end(self._members[index])

    def close(self) -> None:
        """End all of them. A second call does nothing."""
        self._tokens.close()

    def _run(self) -> Generator[tuple[int, Token], None, None]:
        clock, runner, schedule = self._clock, self._runner, self._schedule
        clock.resume()
        alone = len(self.generations) == 1
        if alone and self._after is not None:
            self._members[0].computed = self.generations[0].reused = self._reusable(self._after)
        number = runner.calls.begin()
        indices = {member: index for index, member in enumerate(self._members)}
        for member in self._members:
            if not member.over:
                schedule.add(member)
        try:
            if self._together:
                runner.prefill_all(schedule)
            for arrival in runner.tokens(schedule, self.generations[0].accepted):
                index = indices[arrival.member]
                generation = self.generations[index]
                try:
                    self._check(arrival)
                except KernError as error:
                    generation.error = error
                    schedule.end(arrival.member)
                    if alone:
                        raise
                    continue
                if alone:
                    generation.owner = runner, number
                token = self._add(index, arrival)
                clock.pause()
                yield index, token
                clock.resume()
                runner.calls.require(number)
        finally:
            for member in self._members:
                schedule.end(member)
        self._raise_errors()

    def _reusable(self, after: Generation) -> int:
        """The number of leading tokens of the only prompt whose state is still there from an earlier generation."""
        runner, number = after.owner or (None, 0)
        if runner is not self._runner or not self._runner.calls.holds(number):
            return 0
        same = zip(self.generations[0].prompt_ids[:-1], after.state_ids(rounds=self._runner.spec), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], same))

    def _check(self, token: Chosen) -> None:
        """Raises UnusableLogits if no token was chosen, ContractError for an id that is not in the vocabulary."""
        id, vocabulary = chosen(token.id, token.program, token.index - 1), self._runner.settings.vocabulary
        if not 0 <= id < vocabulary:
            raise ContractError(
                f"the device chose the token id {id}; ids are 0…{vocabulary - 1}",
                "check the kernels that choose a token, or build the folder again",
            )

    def _add(self, index: int, arrival: Chosen) -> Token:
        generation, member, now = self.generations[index], arrival.member, self._clock.elapsed()
        if member.filled is None:
            member.filled = now
        else:
            generation.timed_tokens += 1
        generation.prefill_s, generation.decode_s = member.filled - member.admitted, now - member.filled
        token = generation.add(arrival.id, self._steps[index])
        if generation.stop is not None:
            self._schedule.end(member)
        return token

    def _raise_errors(self) -> None:
        """Raise the first error, with the indices of all prompts that ended in one."""
        failed = [(index, each.error) for index, each in enumerate(self.generations) if each.error is not None]
        if failed:
            index, error = failed[0]
            others = "".join(f", {each}" for each, _ in failed[1:])
            more = f" (prompts that ended in an error: {index}{others})" if others else ""
            raise type(error)(f"prompt {index}: {error.message}{more}", error.help) from error


class _Clock:
    """Seconds of work, without the caller's time between two tokens."""

    def __init__(self) -> None:
        self._before = 0.0
        self._since: float | None = None

    def elapsed(self) -> float:
        """The seconds so far."""
        return self._before + (0.0 if self._since is None else time.perf_counter() - self._since)

    def resume(self) -> None:
        """Go on counting."""
        self._since = time.perf_counter()

    def pause(self) -> None:
        """Stop counting."""
        self._before, self._since = self.elapsed(), None
