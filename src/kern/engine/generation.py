"""One generation: what a sequence has generated so far, why it ended, and how long it took."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kern.engine.stop_strings import StopStrings
from kern.manifest.errors import KernError
from kern.text.tokenizer import TextStream, Tokenizer

Stop: TypeAlias = Literal["length", "stop_token", "stop_text"]


@dataclass(frozen=True, slots=True)
class Token:
    """A generated id, and the text that it completes, which may be empty."""

    id: int
    text: str


class Generation:
    """A generation in progress: an iterator over tokens that keeps what it has returned.

    With speculation, `accepted` has the number of draft tokens that each round accepted. A round returns one token
    more; those of the last round past the end of the text are dropped. `stop` is None until the end, and after an
    error, which is `error`. A stop token is the last of `output_ids`, and so is the token that completes a stop string,
    whose text is left out. Text held back because of an incomplete character or a possible stop string comes with the
    last token at the latest. The state of the first `reused` tokens of the prompt was there already.

    Times are in seconds, without the caller's own: `prefill_s` from its admission to the first token, `decode_s` from
    then to the last. With speculation, `prefill_s` is that of the state alone, and `decode_s` that of all tokens.

    One generation of a batch may be iterated over too; tokens that the others get meanwhile are in their `output_ids`
    and `text`, and the batch does not return them again.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt_ids: Sequence[int],
        max_tokens: int,
        stop_ids: Collection[int],
        stops: Sequence[str],
    ) -> None:
        self.prompt_ids = tuple(prompt_ids)
        self.output_ids: list[int] = []
        self.accepted: list[int] = []
        self.text = ""
        self.stop: Stop | None = None
        self.error: KernError | None = None
        self.reused = 0
        self.prefill_s = 0.0
        self.decode_s = 0.0
        self.timed_tokens = 0
        """The number of tokens that `decode_s` was spent on."""
        self.owner: tuple[object, int] | None = None
        """If it has the executable's state for itself: its generator, and the number of its text."""
        self._max_tokens = max_tokens
        self._stop_ids = frozenset(stop_ids)
        self._stream = StopStrings(TextStream(tokenizer, prompt_ids), stops)
        self._source: Iterator[tuple[int, Token]] = iter(())
        self._index = 0

    @property
    def capacity_full(self) -> bool:
        """Whether it ended before its limit because the capacity is full."""
        return self.stop == "length" and len(self.output_ids) < self._max_tokens

    def state_ids(self, rounds: bool) -> Sequence[int]:
        """The leading ids whose state is computed, that of a draft model too if it ran in `rounds`.

        A token has its state once the token after it is known. A round computes the draft's state for the rows of the
        round before, and plain steps do not compute it.
        """
        count = len(self.prompt_ids) - 1
        count += sum(1 + each for each in self.accepted[:-1]) if rounds else len(self.output_ids)
        return (*self.prompt_ids, *self.output_ids)[:count]

    @property
    def ms_per_token(self) -> float | None:
        """Milliseconds per token of those that `decode_s` was spent on; None if there are none."""
        return self.decode_s / self.timed_tokens * 1e3 if self.timed_tokens else None

    def steps(self, capacity: int) -> int:
        """The most tokens that it can have: the last one needs no state."""
        return min(self._max_tokens, capacity - len(self.prompt_ids) + 1)

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        for index, token in self._source:
            if index == self._index:
                return token
        raise StopIteration

    def follow(self, source: Iterator[tuple[int, Token]], index: int) -> None:
        """Take its tokens from `source`, where they have this index."""
        self._source, self._index = source, index

    def add(self, id: int, steps: int) -> Token:
        """Keep the next id, of at most `steps`; `stop` says whether it is the last."""
        self.output_ids.append(id)
        text = self._stream.add(id)
        if self._stream.found:
            self.stop = "stop_text"
        elif id in self._stop_ids:
            self.stop = "stop_token"
        elif len(self.output_ids) == steps:
            self.stop = "length"
        if self.stop is not None:
            text += self._stream.finish()
        self.text += text
        return Token(id, text)
