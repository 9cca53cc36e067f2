"""What a fuzz target is: valid inputs, ways to change them, and one reader that must accept or refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from fuzz.byte_changes import MOST_BYTES

ACCEPTED = "accepted"

Change = Callable[[Random, bytes, Sequence[bytes]], bytes]
"""From an input and the corpus to another input. All of its choices come from the generator that it is given."""


class Contradiction(Exception):
    """An input was accepted, and an invariant or an independent reader says otherwise."""


@dataclass(frozen=True)
class Target:
    """One reader under test.

    `run` is given an input and an empty folder. It returns `accepted` or `refused: CODE`, or raises KernError, which
    counts as refused. Everything else is a finding: any other exception, a crash, more than `seconds` of processor
    time, more than `memory` bytes beyond what the process had. `short` inputs are run by `make test`.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    change: Change
    run: Callable[[bytes, Path], str]
    short: int
    seconds: float = 10.0
    memory: int = 2**28


def input_of(target: Target, corpus: Sequence[bytes], seed: int, index: int) -> bytes:
    """Input number `index` of a run: the seeds of the target first, then changes of the corpus."""
    seeds = target.seeds()
    if index < len(seeds):
        return seeds[index]
    random = Random(f"{seed}/{target.name}/{index}")
    data = random.choice(random.choice((seeds, corpus)))
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        try:
            changed = target.change(random, data, corpus)
        except RecursionError:  # changed so often before that it nests too deep to be changed again
            break
        data = changed if len(changed) <= MOST_BYTES else data
    return data


def require(holds: bool, what: str) -> None:
    """Raise Contradiction unless the invariant holds."""
    if not holds:
        raise Contradiction(what)
