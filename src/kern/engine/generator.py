"""Text generation: chunked prefill, then greedy decoding until a stop token, a limit or the capacity."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, Literal

from kern.contracts.text import ContractError, round_calls
from kern.contracts.text_checks import check_generation, check_speculation
from kern.engine.decoding import Decode, device_fed, host_fed
from kern.engine.sequence import Ids, PagedSequence, PromptError, SizedCall, check_count, check_room, token_ids
from kern.engine.speculation import Driver, Rounds, device_driven, host_driven, speculative
from kern.engine.stop_strings import StopStrings, check_stops
from kern.manifest.counts import counted
from kern.runtime.executable import Executable
from kern.runtime.symbols import as_integer
from kern.text.tokenizer import TextStream, Tokenizer

Stop = Literal["length", "stop_token", "stop_text"]

CHUNK: Final = 512
"""Most tokens of a prefill call where the program takes as many."""

DRIVERS: Final[dict[Driver, Rounds]] = {"device": device_driven, "host": host_driven}


@dataclass(frozen=True, slots=True)
class Token:
    """A generated id, and the text that it completes: often a word's piece, sometimes none."""

    id: int
    text: str


class Generation:
    """One generation under way: an iterator over tokens that keeps what it has given.

    `accepted` are the drafts that each round accepted, where it speculates: a round gives one token more than that,
    of which the last round's may lie past the end and be dropped. `stop` is None until the end. The stop token is
    the last of `output_ids`, and so is the token that completes a stop string, whose text is left out; text held back
    for an incomplete character, or what may be the beginning of a stop string, comes with the last token at the
    latest. `reused` tokens of the prompt had their state already. Times are in seconds; decode's is the time spent
    waiting for tokens, the caller's own left out.
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
        """Whether it ended short of its limit, since the state has room for no more."""
        return self.stop == "length" and len(self.output_ids) < self._max_tokens

    def __iter__(self) -> Iterator[Token]:
        return self

    def __next__(self) -> Token:
        return next(self._tokens)

    def state_ids(self, generator: Generator) -> Sequence[int]:
        """The ids from the first on whose state `generator` finds in place; none once another text has been begun.

        A token has its state once what follows it is known. With speculation the draft's counts too: a round makes
        that of the rows of the round before it, and what a plain step decodes has none.
        """
        if generator is not self._generator or self._number is None or not generator.holds(self._number):
            return ()
        count = len(self.prompt_ids) - 1
        count += len(self.output_ids) if generator.spec is None else sum(1 + each for each in self.accepted[:-1])
        return (*self.prompt_ids, *self.output_ids)[:count]

    def _run(self, after: Generation | None) -> Iterator[Token]:
        generator, prompt = self._generator, self.prompt_ids
        if after is not None:
            self.reused = _common(prompt[:-1], after.state_ids(generator))
        started = time.perf_counter()
        number = self._number = generator.prefill(prompt[:-1], self.reused)
        self.prefill_s = time.perf_counter() - started
        # The last token needs no state of its own, so one more than the room left can be generated.
        steps = min(self._max_tokens, generator.capacity - len(prompt) + 1)
        ids = generator.decode(number, prompt[-1], len(prompt) - 1, steps, self.accepted)
        stream = StopStrings(TextStream(generator.tokenizer, prompt), self._stops)
        for step in range(steps):
            started = time.perf_counter()
            id = _existing(next(ids), generator.tokenizer)
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


class Generator:
    """Generates text with an executable that keeps the text contract, one generation at a time."""

    def __init__(
        self,
        executable: Executable,
        tokenizer: Tokenizer,
        *,
        chunk: int | None = None,
        eager: bool = False,
        host_fed: bool = False,
        spec: Driver | None = None,
    ) -> None:
        """`chunk` is the most tokens a prefill call takes; None: 512, or what the program takes where that is less.

        `graphs` says what was recorded as a graph, program and tokens; with `eager`, nothing is. With
        `host_fed`, each step waits for the one before, though the manifest could feed itself. With `spec`, the
        manifest's draft model proposes tokens, which change nothing but the speed: rounds follow one another on
        the device, or the host reads and judges each, the slow and simple way; `rows` is the most tokens that a round
        gives, 1 without. Raises ContractError and PromptError.
        """
        check_generation(executable.manifest, tokenizer.settings)
        if spec is not None and spec not in DRIVERS:
            raise PromptError(f"spec is {spec!r}", f"give one of {', '.join(map(repr, DRIVERS))}, or None")
        self.spec: Driver | None = spec
        self.rows = 1 if spec is None else check_speculation(executable.manifest, tokenizer.settings)
        self.tokenizer = tokenizer
        self._sequence = PagedSequence(executable, tokenizer.settings)
        most = self._sequence.most_tokens("prefill")
        self._chunk = min(CHUNK, most) if chunk is None else as_integer(chunk) or 0
        if not 1 <= self._chunk <= most:
            raise PromptError(f"the chunk is {chunk!r} tokens", f"give 1 to {most}, as many as program prefill takes")
        self._decode = _decode(executable, host_fed)
        recorded = {} if eager else self._recorded()
        for calls in recorded.values():
            self._sequence.record(*calls)
        self.graphs: tuple[SizedCall, ...] = tuple(recorded)

    @property
    def executable(self) -> Executable:
        """What it drives."""
        return self._sequence.executable

    @property
    def runs_ahead(self) -> bool:
        """Whether plain steps are launched before the tokens of those before them are known."""
        return self._decode is device_fed

    @property
    def capacity(self) -> int:
        """Tokens that a prompt and what follows it may have; the very last token needs no place."""
        return self._sequence.capacity

    def generate(
        self,
        prompt: str | Ids,
        *,
        max_tokens: int = 128,
        ignore_stop: bool = False,
        stop: Sequence[str] = (),
        after: Generation | None = None,
    ) -> Generation:
        """Generate after `prompt`, text or token ids; the work is done as tokens are asked for.

        It ends before the first text of `stop` that is complete; `ignore_stop` goes on after stop tokens alone. The
        state of the ids that the prompt shares with `after`, an earlier generation of this generator, is used
        again, where no other text has been begun since. Raises PromptError for an empty prompt, one longer than the
        capacity, an id out of range, or a stop string that no text has in it; NoTokenizer for text where the folder
        has no tokenizer. Asking for a token raises UnusableLogits where none can be chosen.
        """
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        given = check_prompt(ids, self.tokenizer, self.capacity)
        check_count("max_tokens", max_tokens)
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        check_stops(stops, self.tokenizer)
        stop_ids = () if ignore_stop else self.tokenizer.settings.stop_ids
        return Generation(self, given, max_tokens, stop_ids, stops, after)

    def holds(self, text: int) -> bool:
        """Whether the state is still that of the text of this number."""
        return self._sequence.holds(text)

    def prefill(self, ids: Sequence[int], reused: int = 0) -> int:
        """Begin a text with the state of `ids`, and give its number; the first `reused` have theirs already.

        A full chunk replays a graph, the rest runs eagerly. What was under way in the executable is superseded.
        """
        number = self._sequence.begin()
        for start in range(reused, len(ids), self._chunk):
            chunk = ids[start : start + self._chunk]
            self._sequence.place(chunk, start)
            self._sequence.run(("prefill", len(chunk)))
        self._sequence.executable.synchronize()
        return number

    def decode(self, text: int, token: int, position: int, steps: int, accepted: list[int]) -> Iterator[int]:
        """The `steps` ids after `token`, whose state comes to stand at `position` of the text of that number.

        What each round accepts is appended to `accepted`. Raises Superseded where another text has been begun in
        the executable by then.
        """
        decode = self._decode
        if self.spec is not None:
            decode = speculative(DRIVERS[self.spec], self.rows, decode, accepted)
        ids = decode(self._sequence, token, position, steps)
        for _ in range(steps):
            self._sequence.require(text)
            yield next(ids)

    def _recorded(self) -> dict[SizedCall, tuple[SizedCall, ...]]:
        """What is recorded, the calls of each graph by what it is called: a round of the device is one graph."""
        single: tuple[SizedCall, ...] = (("prefill", self._chunk), ("decode", 1))
        if self.spec == "device":
            return {each: (each,) for each in single} | {("round", self.rows): round_calls(self.rows)}
        return {each: (each,) for each in (*single, *(round_calls(self.rows) if self.spec else ()))}


def check_prompt(ids: Ids, tokenizer: Tokenizer, capacity: int) -> list[int]:
    """The ids as integers. Raises PromptError for a prompt that cannot be run: no tokens or too many, or a wrong id."""
    given = token_ids(ids, tokenizer)
    check_room(f"the prompt has {counted(len(given), 'token')}", len(given), capacity, tokenizer.settings)
    return given


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _existing(id: int, tokenizer: Tokenizer) -> int:
    """Raises ContractError for an id that the device chose and the vocabulary does not have."""
    vocabulary = tokenizer.settings.vocabulary
    if not 0 <= id < vocabulary:
        raise ContractError(
            f"the device chose the token id {id}, and ids are 0…{vocabulary - 1}",
            "look at the kernels that choose a token, or build the folder again",
        )
    return id


def _decode(executable: Executable, through_host: bool) -> Decode:
    return device_fed if "begin" in executable.manifest.programs and not through_host else host_fed
