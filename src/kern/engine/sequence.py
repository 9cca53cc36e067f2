"""One sequence in an executable's paged state, and the checks of ids and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kern.contracts.text import TextSettings
from kern.engine.calls import Calls, Rows, SizedCall
from kern.engine.schedule import pages_of
from kern.manifest.counts import counted
from kern.manifest.errors import KernError, variant
from kern.runtime.executable import Executable
from kern.runtime.graph import ExecutableGraph
from kern.runtime.symbols import as_integer

PromptError = variant(KernError, "bad-prompt", "There are no token ids, too many, or unknown ones.", exit_code=2)

Sized: TypeAlias = tuple[str, int]
"""A program and the tokens that it is called with, for one sequence."""


class PagedSequence:
    """The only sequence of a text, in slot 0. Page i of the sequence is page i of the pool."""

    def __init__(self, executable: Executable, settings: TextSettings, *, slots: int = 1, eager: bool = False) -> None:
        """The parameters are those of `Calls`, which other texts may use for several sequences."""
        self.executable = executable
        self.calls = Calls(executable, settings, slots=slots, eager=eager)
        self.capacity = self.calls.capacity
        self.pages = list(range(pages_of(self.capacity)))

    def begin(self) -> int:
        """Start a new text in the state, and return its number."""
        return self.calls.begin()

    def write_inputs(self, ids: Sequence[int], start: int) -> None:
        """Write the inputs of a call whose first token is at position `start`."""
        self.calls.write(("prefill", len(ids), 1), [Rows(ids, start, self.pages)])

    def record(self, *calls: Sized) -> None:
        """From now on, `run` of these programs with these numbers of tokens replays a graph."""
        self.calls.record(*_sized(calls))

    def recorded(self, *calls: Sized) -> ExecutableGraph:
        """A graph that runs these programs with these numbers of tokens on the current inputs."""
        return self.calls.recorded(*_sized(calls))

    def run(self, *calls: Sized) -> None:
        """Run programs with these numbers of tokens, in order, on the current inputs."""
        self.calls.run(*_sized(calls))

    def values(self, tokens: int) -> dict[str, int]:
        """The symbol values of a call of `tokens` tokens."""
        return self.calls.values(tokens, 1)


def _sized(calls: Sequence[Sized]) -> tuple[SizedCall, ...]:
    return tuple((program, tokens, 1) for program, tokens in calls)


Ids = Sequence[SupportsIndex] | NDArray[np.integer]
"""Token ids: a sequence of integers of any type, or a one-dimensional array."""


def token_ids(ids: Ids, vocabulary: int) -> list[int]:
    """The ids as integers. Raises PromptError if there are none, or one is not in the vocabulary."""
    if isinstance(ids, np.ndarray) and ids.ndim == 1:
        ids = ids.tolist()
    if not isinstance(ids, Sequence) or isinstance(ids, str | bytes | bytearray):
        raise PromptError(
            f"the prompt is a {type(ids).__name__}, not text or a list of token ids", "give a list of integers"
        )
    if not ids:
        raise PromptError("the prompt is empty", "give at least one token")
    integers = []
    for index, given in enumerate(ids):
        id = as_integer(given)
        if id is None:
            raise PromptError(f"token id {given!r} at index {index} is not an integer", f"ids are 0…{vocabulary - 1}")
        if not 0 <= id < vocabulary:
            raise PromptError(f"token id {id} at index {index} is out of range", f"ids are 0…{vocabulary - 1}")
        integers.append(id)
    return integers


def check_prompt(ids: Ids, settings: TextSettings, capacity: int) -> list[int]:
    """The ids as integers. Raises PromptError for a prompt without tokens, with too many, or with an invalid id."""
    given = token_ids(ids, settings.vocabulary)
    check_room(f"the prompt has {counted(len(given), 'token')}", len(given), capacity, settings)
    return given


def check_count(what: str, count: object) -> None:
    """Raises PromptError if a number of tokens is not an integer of at least 1."""
    integer = as_integer(count)
    if integer is None or integer < 1:
        raise PromptError(f"{what} is {count!r}", "give an integer of at least 1")


def check_room(what: str, tokens: int, capacity: int, settings: TextSettings) -> None:
    """Raises PromptError if the state of `tokens` tokens does not fit; `what` begins the message."""
    if tokens > min(capacity, settings.positions):
        if capacity < settings.positions:
            raise PromptError(f"{what}; the capacity is {capacity}", "shorten it, or load with a larger capacity")
        raise PromptError(f"{what}; the model has {settings.positions} positions", "shorten it")
