"""Texts before which a generation ends, found across the pieces in which its text arrives."""

from __future__ import annotations

from collections.abc import Sequence

from kern.engine.sequence import PromptError
from kern.text.tokenizer import NoTokenizer, TextStream, Tokenizer


class StopStrings:
    """The text of ids that arrive one by one, up to the first of some texts that is complete.

    What may be the beginning of one is held back until it is decided. Where two are complete at the same character,
    the text ends before the longer one. So the end does not depend on how the text is cut into tokens.
    """

    def __init__(self, stream: TextStream, stops: Sequence[str]) -> None:
        """`stops` have been checked by `check_stops`."""
        self.found = False
        self._stream = stream
        self._automata = tuple(map(_Automaton, stops))
        self._held = ""

    def add(self, id: int) -> str:
        """The text that `id` completes and that comes before any stop string."""
        return self._pass(self._stream.add(id))

    def finish(self) -> str:
        """What is left at the end; nothing once a stop string was found."""
        text = self._pass(self._stream.finish())
        held, self._held = self._held, ""
        return text + held

    def _pass(self, text: str) -> str:
        for place, character in enumerate(text):
            if self.found:
                return ""
            whole = max((each.length for each in self._automata if each.advance(character)), default=0)
            if whole:
                self.found = True
                seen, self._held = self._held + text[: place + 1], ""
                return seen[:-whole]
        if self.found:
            return ""
        seen = self._held + text
        kept = len(seen) - max((each.matched for each in self._automata), default=0)
        self._held = seen[kept:]
        return seen[:kept]


class _Automaton:
    """How much of one text the characters seen last are the beginning of (Knuth, Morris and Pratt)."""

    def __init__(self, text: str) -> None:
        self.matched = 0
        self._text = text
        self._shorter = [0]
        for character in text[1:]:
            self._shorter.append(self._next(self._shorter[-1], character))

    @property
    def length(self) -> int:
        """Characters of the text."""
        return len(self._text)

    def advance(self, character: str) -> bool:
        """Whether the text is complete with this character."""
        self.matched = self._next(self.matched, character)
        return self.matched == len(self._text)

    def _next(self, matched: int, character: str) -> int:
        while matched and self._text[matched] != character:
            matched = self._shorter[matched - 1]
        return matched + (self._text[matched] == character)


def check_stops(stops: Sequence[str], tokenizer: Tokenizer) -> None:
    """Raises PromptError for a stop string that no text can have in it, NoTokenizer where there is no text."""
    if stops and not tokenizer.has_vocabulary:
        raise NoTokenizer(
            "this folder has no tokenizer, so there is no text to stop at", "generate without stop strings"
        )
    for stop in stops:
        if not stop:
            raise PromptError("a stop string is empty", "give the text before which to end")
        ids = tokenizer.encode_exactly(stop)
        if ids and not tokenizer.decode(ids):
            raise PromptError(
                f"the stop string {stop!r} is a special token, which the text leaves out",
                "stop tokens end a text by themselves; give a text",
            )
