"""One sequence in an executable's paged state: the inputs of a call, and running programs over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, SupportsIndex
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kern.contracts.text import PAGE, PAGES, SEQS, TOKENS, TextSettings
from kern.manifest.counts import counted
from kern.manifest.errors import KernError, variant
from kern.manifest.references import symbol_range
from kern.runtime.executable import Executable
from kern.runtime.graph import ExecutableGraph
from kern.runtime.stepping import LaunchTime
from kern.runtime.symbols import as_integer

PromptError = variant(KernError, "bad-prompt", "There are no token ids, too many, or unknown ones.", exit_code=2)
Superseded = variant(KernError, "superseded", "Another sequence has overwritten this one's state in the executable.")


SizedCall = tuple[str, int]
"""A program and the tokens that it is called with."""

_TEXTS: Final[WeakKeyDictionary[Executable, int]] = WeakKeyDictionary()
"""How many texts have been begun in each executable's state, whoever drives it."""


class PagedSequence:
    """The only sequence of an executable. Page i of the sequence is page i of the pool.

    Its state holds one text at a time, the last one begun. `capacity` is the number of tokens whose state fits: the
    executable's, or the model's where that is less.
    """

    def __init__(self, executable: Executable, settings: TextSettings) -> None:
        """`settings` have been checked against the executable's manifest."""
        self.executable = executable
        self._graphs: dict[tuple[SizedCall, ...], ExecutableGraph] = {}
        self.capacity = min(executable.capacity, settings.positions)
        self._pages = -(-self.capacity // PAGE)
        executable.write("block_table", np.arange(self._pages, dtype=np.int32).reshape(1, -1), self.values(1))

    def begin(self) -> int:
        """Take the state for a new text, and give the text's number."""
        number = _TEXTS.get(self.executable, 0) + 1
        _TEXTS[self.executable] = number
        return number

    def holds(self, text: int) -> bool:
        """Whether the text of this number is the last one begun."""
        return _TEXTS.get(self.executable) == text

    def require(self, text: int) -> None:
        """Raises Superseded where a text has been begun since the one of this number."""
        if not self.holds(text):
            raise Superseded("another text has taken this executable's state", "finish one before beginning the next")

    def most_tokens(self, program: str) -> int:
        """The longest call that `program` takes, in tokens."""
        return symbol_range(self.executable.manifest, program, TOKENS.sym)[1]

    def place(self, ids: Sequence[int], start: int) -> None:
        """Write the inputs of a call whose first token stands at position `start`."""
        end = start + len(ids)
        positions = np.arange(start, end, dtype=np.int64)
        write, values = self.executable.write, self.values(len(ids))
        write("token_ids", np.array(ids, dtype=np.int64), values)
        write("positions", positions, values)
        write("slot_mapping", positions, values)
        write("seq_lens", np.array([end], dtype=np.int32), values)
        write("cu_seqlens_q", np.array([0, len(ids)], dtype=np.int32), values)

    def record(self, *calls: SizedCall) -> None:
        """Have `run` of these calls replay a graph from now on."""
        self._graphs[calls] = self.recorded(*calls)

    def recorded(self, *calls: SizedCall) -> ExecutableGraph:
        """A graph that runs these calls over the inputs in place."""
        return self.executable.graph([(program, self.values(tokens)) for program, tokens in calls])

    def profile(self, program: str, tokens: int) -> tuple[LaunchTime, ...]:
        """Run `program` over the inputs in place, and wait; the time of each launch."""
        return self.executable.profile(program, self.values(tokens))

    def run(self, *calls: SizedCall) -> None:
        """Run these calls, in order, over the inputs in place."""
        graph = self._graphs.get(calls)
        if graph is not None:
            graph.launch()
            return
        for program, tokens in calls:
            self.executable.run(program, self.values(tokens))

    def values(self, tokens: int) -> dict[str, int]:
        """The symbol values of a call of so many tokens."""
        return {TOKENS.sym: tokens, SEQS.sym: 1, PAGES.sym: self._pages}


Ids = Sequence[SupportsIndex] | NDArray[np.integer]
"""Token ids: integers of Python, numpy or the like in an order, or one dimension of an array."""


def token_ids(ids: Ids, vocabulary: int) -> list[int]:
    """The ids as integers. Raises PromptError for none at all, and for one that is not in the vocabulary."""
    if isinstance(ids, np.ndarray) and ids.ndim == 1:
        ids = ids.tolist()
    if not isinstance(ids, Sequence) or isinstance(ids, str | bytes | bytearray):
        raise PromptError(
            f"the prompt is a {type(ids).__name__}, neither text nor a list of token ids", "give a list of integers"
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
    """The ids as integers. Raises PromptError for a prompt that cannot be run: no tokens or too many, or a wrong id."""
    given = token_ids(ids, settings.vocabulary)
    check_room(f"the prompt has {counted(len(given), 'token')}", len(given), capacity, settings)
    return given


def check_count(what: str, count: object) -> None:
    """Raises PromptError for a number of tokens that is not an integer of at least 1."""
    integer = as_integer(count)
    if integer is None or integer < 1:
        raise PromptError(f"{what} is {count!r}", "give an integer of at least 1")


def check_room(what: str, tokens: int, capacity: int, settings: TextSettings) -> None:
    """Raises PromptError where the state of `what`, `tokens` tokens, does not fit."""
    if tokens > min(capacity, settings.positions):
        if capacity < settings.positions:
            raise PromptError(f"{what}, the capacity is {capacity}", "shorten it, or load with a larger capacity")
        raise PromptError(f"{what}, the model has {settings.positions} positions", "shorten it")
