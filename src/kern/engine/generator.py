"""Text generation: a prompt in, text out, up to a stop token, a stop string, a limit or the capacity."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from kern.engine.runner import Runner
from kern.engine.sequence import Ids, check_count, check_prompt
from kern.engine.stop_strings import StopStrings, check_stops
from kern.runtime.executable import Executable
from kern.text.tokenizer import TextStream, Tokenizer

Stop = Literal["length", "stop_token", "stop_text"]


@dataclass(frozen=True, slots=True)
class Token:
    """A generated id, and the text that it completes, which may be empty."""

    id: int
    text: str


class Generation:
    """A generation in progress: an iterator over tokens that keeps what it has returned.

    With speculation, `accepted` has the number of draft tokens that each round accepted. A round returns one token
    more; those of the last round past the end of the text are dropped. `stop` is None until the end. A stop token is
    the last of `output_ids`, and so is the token that completes a stop string, whose text is left out. Text held back
    because of an incomplete character or a possible stop string comes with the last token at the latest. The state of
    the first `reused` tokens of the prompt was there already. Times are in seconds; `decode_s` is the time spent
    waiting for tokens, without the caller's own.
    """

    def __init__(
        self,
        generator: Generator,
        prompt_ids: Sequence[int],
        max_tokens: int,
        stop_ids: Collection[int],
        stops: Sequence[str],
        after: Generation | None,
    ) -> None:
        self.prompt_ids = tuple(prompt_ids)
        self.output_ids: list[int] = []
        self.accepted: list[int] = []
        self.text = ""
        self.stop: Stop | None = None
        self.reused = 0
        self.prefill_s = 0.0
        self.decode_s = 0.0
        self._generator = generator
        self._max_tokens = max_tokens
        self._stop_ids = frozenset(stop_ids)
        self._stops = tuple(stops)
        self._number: int | None = None
        self._tokens = self._run(after)

    @property
    def capacity_full(self) -> bool:
        """Whether it ended before its limit because the capacity is full."""
        return self.stop == "length" and len(self.output_ids) < self._max_tokens

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        return next(self._tokens)

    def state_ids(self, generator: Generator) -> Sequence[int]:
        """The leading ids whose state `generator` still has; none once another text has been started.

        A token has its state once the token after it is known. With speculation the draft model's state counts too: a
        round computes it for the rows of the round before, and plain steps do not compute it.
        """
        if generator is not self._generator or self._number is None or not generator.sequence.holds(self._number):
            return ()
        count = len(self.prompt_ids) - 1
        count += sum(1 + each for each in self.accepted[:-1]) if generator.spec else len(self.output_ids)
        return (*self.prompt_ids, *self.output_ids)[:count]

    def _run(self, after: Generation | None) -> Iterator[Token]:
        generator, prompt = self._generator, self.prompt_ids
        if after is not None:
            self.reused = _common(prompt[:-1], after.state_ids(generator))
        started = time.perf_counter()
        number = self._number = generator.prefill(prompt[:-1], self.reused)
        self.prefill_s = time.perf_counter() - started
        # The last token needs no state, so one token more than the capacity leaves can be generated.
        steps = min(self._max_tokens, generator.capacity - len(prompt) + 1)
        ids = generator.decode(number, prompt[-1], len(prompt) - 1, steps, self.accepted)
        stream = StopStrings(TextStream(generator.tokenizer, prompt), self._stops)
        for step in range(steps):
            started = time.perf_counter()
            id = next(ids)
            self.decode_s += time.perf_counter() - started
            self.output_ids.append(id)
            text = stream.add(id)
            stop = "stop_text" if stream.found else self._stop(id, steps - step - 1)
            if stop is not None:
                text += stream.finish()
            self.text += text
            self.stop = stop
            yield Token(id, text)
            if stop is not None:
                return

    def _stop(self, id: int, left: int) -> Stop | None:
        if id in self._stop_ids:
            return "stop_token"
        return None if left else "length"


class Generator(Runner):
    """Generates text with an executable that satisfies the text contract, one generation at a time."""

    def __init__(
        self,
        executable: Executable,
        tokenizer: Tokenizer,
        *,
        chunk: int | None = None,
        eager: bool = False,
        spec: bool = False,
    ) -> None:
        """The options are those of `Runner`. Raises ContractError and PromptError."""
        super().__init__(executable, tokenizer.settings, chunk=chunk, eager=eager, spec=spec)
        self.tokenizer = tokenizer

    def generate(
        self,
        prompt: str | Ids,
        *,
        max_tokens: int = 128,
        ignore_stop: bool = False,
        stop: Sequence[str] = (),
        after: Generation | None = None,
    ) -> Generation:
        """Generate after `prompt`, text or token ids; tokens are computed as they are requested.

        The text ends before the first string of `stop` that is complete; `ignore_stop` continues after stop tokens, not
        after stop strings. The state of the ids that the prompt shares with `after`, an earlier generation of this
        generator, is reused if no other text has been started since. Raises PromptError for an empty prompt, a prompt
        longer than the capacity, an id out of range, or a stop string that cannot occur; NoTokenizer for text if the
        folder has no tokenizer. Requesting a token raises UnusableLogits if none can be chosen.
        """
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        given = check_prompt(ids, self.settings, self.capacity)
        check_count("max_tokens", max_tokens)
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        check_stops(stops, self.tokenizer)
        stop_ids = () if ignore_stop else self.settings.stop_ids
        return Generation(self, given, max_tokens, stop_ids, stops, after)


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
