"""Text generation: prompts in, text out, up to a stop token, a stop string, a limit or the capacity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, overload

import numpy as np

from kern.engine.batch import Batch
from kern.engine.generation import Generation
from kern.engine.runner import Runner
from kern.engine.sequence import Ids, PromptError, check_count, check_prompt
from kern.engine.stop_strings import check_stops
from kern.runtime.executable import Executable
from kern.text.tokenizer import Tokenizer

Prompt: TypeAlias = str | Ids
"""A text, or its token ids."""


class Generator(Runner):
    """Generates text with an executable that satisfies the text contract, one batch at a time."""

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

    @overload
    def generate(  # type: ignore[overload-overlap]  # a text is a sequence of texts too
        self,
        prompt: Prompt,
        *,
        max_tokens: int = 128,
        ignore_stop: bool = False,
        stop: Sequence[str] = (),
        after: Generation | None = None,
    ) -> Generation: ...

    @overload
    def generate(
        self,
        prompt: Sequence[str] | Sequence[Ids],
        *,
        max_tokens: int = 128,
        ignore_stop: bool = False,
        stop: Sequence[str] = (),
    ) -> Batch: ...

    def generate(
        self,
        prompt: Prompt | Sequence[str] | Sequence[Ids],
        *,
        max_tokens: int = 128,
        ignore_stop: bool = False,
        stop: Sequence[str] = (),
        after: Generation | None = None,
    ) -> Generation | Batch:
        """Generate after `prompt`, text or token ids, or after each of a list of prompts, as tokens are requested.

        A text ends before the first string of `stop` that is complete; `ignore_stop` continues after stop tokens, not
        after stop strings. The state of the ids that one prompt shares with `after`, an earlier generation of this
        generator, is reused if no other text has been started since. Prompts of a list run at the same time, as many as
        there are slots in the folder and pages in the pool; the others wait.

        Raises PromptError for an empty prompt, a prompt longer than the capacity, an id out of range, or a stop string
        that cannot occur; NoTokenizer for text if the folder has no tokenizer. Requesting a token raises UnusableLogits
        if none can be chosen.
        """
        many = _several(prompt)
        prompts: list[Any] = list(prompt) if many else [prompt]
        if many and after is not None:
            raise PromptError("only a single prompt can reuse the state of an earlier one", "leave `after` out")
        if self.spec and len(prompts) > 1:
            raise PromptError(
                f"there are {len(prompts)} prompts, and speculation runs one at a time",
                "give one prompt, or use a generator without spec",
            )
        ids = [self._ids(each, f"prompt {index}: " if many else "") for index, each in enumerate(prompts)]
        check_count("max_tokens", max_tokens)
        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        check_stops(stops, self.tokenizer)
        stop_ids = () if ignore_stop else self.settings.stop_ids
        batch = Batch(self, [Generation(self.tokenizer, each, max_tokens, stop_ids, stops) for each in ids], after)
        return batch if many else batch.generations[0]

    def _ids(self, prompt: Prompt, where: str) -> list[int]:
        """The ids of a prompt; `where` begins the message of an error."""
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        try:
            return check_prompt(ids, self.settings, self.capacity)
        except PromptError as error:
            raise PromptError(f"{where}{error.message}", error.help) from error


def _several(prompt: object) -> bool:
    """Whether this is a list of prompts: its first element is one."""
    if not isinstance(prompt, list | tuple) or not prompt:
        return False
    return isinstance(prompt[0], str | Sequence | np.ndarray)
