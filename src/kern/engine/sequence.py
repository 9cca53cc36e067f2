"""One sequence in an executable's paged state: its calls and their inputs, and the checks of ids and lengths."""

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
"""The number of texts that have been started in each executable."""


class PagedSequence:
    """The only sequence of an executable. Page i of the sequence is page i of the pool.

    Its state belongs to one text at a time, the last one started. `capacity` is the number of tokens whose state fits:
    the executable's capacity, or the model's positions if these are fewer.
    """

    def __init__(self, executable: Executable, settings: TextSettings) -> None:
        """`settings` must have been checked against the executable's manifest."""
        self.executable = executable
        self._graphs: dict[tuple[SizedCall, ...], ExecutableGraph] = {}
        self.capacity = min(executable.capacity, settings.positions)
        self._pages = -(-self.capacity // PAGE)
        executable.write("block_table", np.arange(self._pages, dtype=np.int32).reshape(1, -1), self.values(1))
        if "row_slots" in executable.manifest.buffers:
            executable.write("row_slots", np.zeros(1, np.int32), self.values(1))

    def begin(self) -> int:
        """Start a new text in the state, and return its number."""
        number = _TEXTS.get(self.executable, 0) + 1
        _TEXTS[self.executable] = number
        return number

    def holds(self, text: int) -> bool:
        """Whether the text of this number is the last one started."""
        return _TEXTS.get(self.executable) == text

    def require(self, text: int) -> None:
        """Raises Superseded if another text has been started since the one of this number."""
        if not self.holds(text):
            raise Superseded(
                "another text has overwritten the state of this one", "finish a text before starting the next one"
            )

    def most_tokens(self, program: str) -> int:
        """The maximum number of tokens per call of `program`."""
        return symbol_range(self.executable.manifest, program, TOKENS.sym)[1]

    def write_inputs(self, ids: Sequence[int], start: int) -> None:
        """Write the inputs of a call whose first token is at position `start`."""
        end = start + len(ids)
        positions = np.arange(start, end, dtype=np.int64)
        write, values = self.executable.write, self.values(len(ids))
        write("token_ids", np.array(ids, dtype=np.int64), values)
        write("positions", positions, values)
        write("slot_mapping", positions, values)
        write("seq_lens", np.array([end], dtype=np.int32), values)
        write("cu_seqlens_q", np.array([0, len(ids)], dtype=np.int32), values)

    def record(self, *calls: SizedCall) -> None:
        """From now on, `run` of these calls replays a graph."""
        self._graphs[calls] = self.recorded(*calls)

    def recorded(self, *calls: SizedCall) -> ExecutableGraph:
        """A graph that runs these calls on the current inputs."""
        return self.executable.graph([(program, self.values(tokens)) for program, tokens in calls])

    def profile(self, program: str, tokens: int) -> tuple[LaunchTime, ...]:
        """Run `program` on the current inputs, and wait; the time of each launch."""
        return self.executable.profile(program, self.values(tokens))

    def run(self, *calls: SizedCall) -> None:
        """Run these calls, in order, on the current inputs."""
        graph = self._graphs.get(calls)
        if graph is not None:
            graph.launch()
            return
        for program, tokens in calls:
            self.executable.run(program, self.values(tokens))

    def values(self, tokens: int) -> dict[str, int]:
        """The symbol values of a call of `tokens` tokens."""
        return {TOKENS.sym: tokens, SEQS.sym: 1, PAGES.sym: self._pages}


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
