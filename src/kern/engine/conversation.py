"""A conversation: each turn renders the whole of it with the chat template, and reuses the state that it shares."""

from __future__ import annotations

from collections.abc import Sequence

from kern.engine.generation import Generation
from kern.engine.generator import Generator
from kern.engine.sequence import check_room
from kern.manifest.counts import counted
from kern.text.chat import Message, chat_prompt, opening


class Conversation:
    """Turns of a user and a model. Nothing else may use the generator's executable until it ends.

    A template may render an earlier answer differently from what the model generated (for example without its
    reasoning), so each turn renders and encodes the whole conversation. The state of the ids that it has in common with
    the last turn is not computed again.
    """

    def __init__(self, generator: Generator, system: str | None = None) -> None:
        """`system` is the message before the first turn; without one, the template may insert its own."""
        self._generator = generator
        self._messages = opening(system)
        self._last: Generation | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages so far; of an unfinished or interrupted answer, the part that has arrived."""
        answer = [] if self._last is None else [Message(role="assistant", content=self._last.text)]
        return (*self._messages, *answer)

    def say(self, text: str, *, max_tokens: int, stop: Sequence[str] = ()) -> Generation:
        """The answer to `text`; its tokens are generated as they are requested.

        Raises ChatError, NotText, and PromptError if the conversation no longer fits the capacity. An error leaves the
        conversation unchanged.
        """
        generator = self._generator
        messages = [*self.messages, Message(role="user", content=text)]
        ids = chat_prompt(generator.tokenizer, messages)
        said = f"the conversation has {counted(len(ids), 'token')}"
        check_room(said, len(ids), generator.capacity, generator.settings)
        answer = generator.generate(ids, max_tokens=max_tokens, stop=stop, after=self._last)
        self._messages, self._last = messages, answer
        return answer
