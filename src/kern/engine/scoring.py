"""How likely a model finds a text: the number that distinguishes a correct build from a broken one."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kern.contracts.text import SEQS, TextSettings
from kern.contracts.text_checks import check_scoring
from kern.engine.choices import total
from kern.engine.sequence import Ids, PagedSequence, PromptError, check_room, token_ids
from kern.manifest.counts import counted
from kern.manifest.references import symbol_range
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
    sequence = PagedSequence(executable, settings)
    text = check_text(ids, settings, sequence.capacity)
    given, targets = text[:-1], np.array(text[1:], dtype=np.int64)
    number = sequence.begin()
    summed, chunk = 0.0, sequence.most_tokens("score")
    most_rows = symbol_range(executable.manifest, "nll", SEQS.sym)[1]
    for start in range(0, len(given), chunk):
        sequence.require(number)
        part = given[start : start + chunk]
        sequence.write_inputs(part, start)
        sequence.run(("score", len(part)))
        for first in range(0, len(part), most_rows):
            sequence.require(number)
            rows = np.arange(first, min(first + most_rows, len(part)))
            values = sequence.values(len(part)) | {SEQS.sym: len(rows)}
            executable.write("logits_rows", rows, values)
            executable.write("targets", targets[start + rows], values)
            executable.run("nll", values)
            summed += total(executable.read("nll", values), "score", start + first)
            if progress is not None:
                progress(start + first + len(rows), len(given))
    return Score(len(targets), summed / len(targets))


def check_text(ids: Ids, settings: TextSettings, capacity: int) -> list[int]:
    """The ids as integers. Raises PromptError for a text with too few or too many tokens, or with an invalid id."""
    given = [] if isinstance(ids, Sequence) and not ids else token_ids(ids, settings.vocabulary)
    if len(given) < 2:
        raise PromptError(f"the text has {counted(len(given), 'token')}", "a score needs at least two tokens")
    check_room(f"the text has {counted(len(given), 'token')}", len(given) - 1, capacity, settings)
    return given
