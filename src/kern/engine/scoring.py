"""How likely a model finds a text: the number that distinguishes a correct build from a broken one."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kern.contracts.text import TextSettings
from kern.contracts.text_checks import check_scoring
from kern.engine.calls import Calls, Rows, SizedCall
from kern.engine.choices import total
from kern.engine.schedule import pages_of
from kern.engine.sequence import Ids, PromptError, check_room, token_ids
from kern.manifest.counts import counted
from kern.runtime.arrays import PendingArray
from kern.runtime.executable import Executable

_LARGEST: Final = math.log(sys.float_info.max)


@dataclass(frozen=True, slots=True)
class Score:
    """`tokens` is the number of predicted tokens, all but the first; `nll` their mean negative log-likelihood in nats.

    It is infinite if a token of the text has a logit of -inf.
    """

    tokens: int
    nll: float

    @property
    def perplexity(self) -> float | None:
        """exp(nll); None above an nll of 709.78, where it exceeds the range of a float."""
        return math.exp(self.nll) if self.nll <= _LARGEST else None


def score(
    executable: Executable,
    settings: TextSettings,
    ids: Ids,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Score:
    """Score a text of at least two tokens; `settings` are those of the executable's folder.

    `progress` is called with the number of predicted tokens and their total. Raises ContractError if the manifest
    cannot score, PromptError for a text that is too short, longer than the capacity, or has an id out of range,
    Superseded if another text is started in the executable meanwhile, and UnusableLogits if a likelihood is NaN.
    """
    check_scoring(executable.manifest, settings)
    calls = Calls(executable, settings)
    text = check_text(ids, settings, calls.capacity)
    given, targets = text[:-1], text[1:]
    number, pages = calls.begin(), list(range(pages_of(len(given))))
    summed, chunk, rows = 0.0, calls.most_tokens("score"), calls.most_sequences("nll")
    for start in range(0, len(given), chunk):
        calls.require(number)
        end = min(start + chunk, len(given))
        call = calls.run_rows("score", [Rows(given[start:end], start, pages)])
        parts = [(first, targets[first : min(first + rows, end)]) for first in range(start, end, rows)]
        reads = [_likelihoods(calls, call, first - start, part) for first, part in parts]
        for (first, _), read in zip(parts, reads, strict=True):
            summed += total(read.wait(), "score", first)
        if progress is not None:
            progress(end, len(given))
    return Score(len(targets), summed / len(targets))


def _likelihoods(calls: Calls, scored: SizedCall, row: int, targets: Sequence[int]) -> PendingArray:
    """The negative log-likelihoods of `targets` after the rows from `row` on of a call of `score`, f32 [targets]."""
    (_, tokens, _), count = scored, len(targets)
    _, _, seqs = calls.sized("nll", tokens, count)
    values = calls.values(tokens, seqs)
    logits_rows, padded = np.full(seqs, -1, np.int64), np.zeros(seqs, np.int64)
    logits_rows[:count], padded[:count] = range(row, row + count), targets
    calls.executable.write("logits_rows", logits_rows, values)
    calls.executable.write("targets", padded, values)
    calls.run(("nll", tokens, seqs))
    return calls.executable.read_async("nll", calls.values(tokens, count))


def check_text(ids: Ids, settings: TextSettings, capacity: int) -> list[int]:
    """The ids as integers. Raises PromptError for a text with too few or too many tokens, or with an invalid id."""
    given = [] if isinstance(ids, Sequence) and not ids else token_ids(ids, settings.vocabulary)
    if len(given) < 2:
        raise PromptError(f"the text has {counted(len(given), 'token')}", "a score needs at least two tokens")
    check_room(f"the text has {counted(len(given), 'token')}", len(given) - 1, capacity, settings)
    return given
