"""Stop strings: a generation ends before the first one, wherever the token boundaries are."""

from __future__ import annotations

from collections.abc import Sequence

from kern.engine.sequence import PromptError
from kern.text.tokenizer import NoTokenizer, TextStream, Tokenizer


class StopStrings:
    """The text of ids that arrive one by one, up to the first complete stop string.

    Text that may be the beginning of a stop string is held back until that is decided. If two are complete at the same
    character, the text ends before the longer one. So the end does not depend on the token boundaries.
    """

    def __init__(self, stream: TextStream, stops: Sequence[str]) -> None:
        """`stops` must have been checked by `check_stops`."""
        self.found = False
        self._stream = stream
        self._automata = tuple(map(_Automaton, stops))
        self._held = ""

    def add(self, id: int) -> str:
        """The text that `id` completes, up to a stop string."""
        return self._pass(self._stream.add(id))

    def finish(self) -> str:
        """The remaining text at the end; empty once a stop string was found."""
        text = self._pass(self._stream.finish())
        held, self._held = self._held, ""
        return text + held

    def _pass(self, text: str) -> str:
        for index, character in enumerate(text):
            if self.found:
                return ""
            whole = max((each.length for each in self._automata if each.advance(character)), default=0)
            if whole:
                self.found = True
                seen, self._held = self._held + text[: index + 1], ""
                return seen[:-whole]
        if self.found:
            return ""
        seen = self._held + text
        kept = len(seen) - max((each.matched for each in self._automata), default=0)
        self._held = seen[kept:]
        return seen[:kept]


class _Automaton:
    """How many characters of one string the last characters match (Knuth, Morris and Pratt)."""

    def __init__(self, text: str) -> None:
        self.matched = 0
        self._text = text
        self._shorter = [0]
        for character in text[1:]:
            self._shorter.append(self._next(self._shorter[-1], character))

    @property
    def length(self) -> int:
        """The number of characters of the string."""
        return len(self._text)

    def advance(self, character: str) -> bool:
        """Whether this character completes the string."""
        self.matched = self._next(self.matched, character)
        return self.matched == len(self._text)

    def _next(self, matched: int, character: str) -> int:
        while matched and self._text[matched] != character:
            matched = self._shorter[matched - 1]
        return matched + (self._text[matched] == character)


def check_stops(stops: Sequence[str], tokenizer: Tokenizer) -> None:
    """Raises PromptError for a stop string that cannot occur, NoTokenizer if the folder has no tokenizer."""
    if stops and not tokenizer.has_vocabulary:
        raise NoTokenizer(
            "this folder has no tokenizer, so there is no text for a stop string", "generate without stop strings"
        )
    for stop in stops:
        if not stop:
            raise PromptError("a stop string is empty", "give the text to stop at")
        ids = tokenizer.encode_exactly(stop)
        if ids and not tokenizer.decode(ids):
            raise PromptError(
                f"the stop string {stop!r} is a special token, which never appears in the text",
                "give other text; stop tokens end a text anyway",
            )
