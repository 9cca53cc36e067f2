"""A conversation: each turn is the whole of it through the model's template, with the state it shares used again."""

from __future__ import annotations

from collections.abc import Sequence

from kern.engine.generator import Generation, Generator
from kern.engine.sequence import check_room
from kern.manifest.counts import counted
from kern.text.chat import Message, chat_prompt, opening


class Conversation:
    """Turns of a user and a model, one after another; the generator's executable is its own meanwhile.

    A template may write a turn otherwise than the model did (without its thoughts, say), so each turn is rendered and
    encoded as a whole. What it has in common with the ids whose state is in place is not computed again.
    """

    def __init__(self, generator: Generator, system: str | None = None) -> None:
        """`system` is the message before the first turn; None: there is none, and the template may put its own."""
        self._generator = generator
        self._messages = opening(system)
        self._last: Generation | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """What has been said so far; of an answer under way or broken off, as much as has come."""
        answer = [] if self._last is None else [Message(role="assistant", content=self._last.text)]
        return (*self._messages, *answer)

    def say(self, text: str, *, max_tokens: int, stop: Sequence[str] = ()) -> Generation:
        """The answer to `text`, made as its tokens are asked for.

        Raises ChatError, NotText, and PromptError where the conversation has outgrown the capacity; it is then as it
        was before.
        """
        generator = self._generator
        messages = [*self.messages, Message(role="user", content=text)]
        ids = chat_prompt(generator.tokenizer, messages)
        said = f"the conversation has {counted(len(ids), 'token')}"
        check_room(said, len(ids), generator.capacity, generator.settings)
        answer = generator.generate(ids, max_tokens=max_tokens, stop=stop, after=self._last)
        self._messages, self._last = messages, answer
        return answer
