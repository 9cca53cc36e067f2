"""How likely a model finds a text: the number that tells a right model from a wrong one."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kern.contracts.text import TextSettings
from kern.contracts.text_checks import check_scoring
from kern.engine.choices import total
from kern.engine.sequence import Ids, PagedSequence, PromptError, check_room, token_ids
from kern.manifest.counts import counted
from kern.runtime.executable import Executable

_LARGEST: Final = math.log(sys.float_info.max)


@dataclass(frozen=True, slots=True)
class Score:
    """`tokens` are those predicted, all but the first; `nll` is their mean negative log-likelihood in nats.

    It is infinite where the text has a token whose logit is -inf.
    """

    tokens: int
    nll: float

    @property
    def perplexity(self) -> float | None:
        """exp(nll); None where that is beyond the numbers there are, from an nll of 709.79 on."""
        return math.exp(self.nll) if self.nll <= _LARGEST else None


def score(
    executable: Executable,
    settings: TextSettings,
    ids: Ids,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Score:
    """Score a text of at least two tokens; `settings` are those of the executable's folder.

    `progress` is called with the tokens predicted and their total. Raises ContractError where the manifest cannot
    score, PromptError for a text too short, longer than the capacity, or with an id out of range; Superseded where
    another text is begun in the executable meanwhile; UnusableLogits where a likelihood is NaN.
    """
    check_scoring(executable.manifest, settings)
    sequence = PagedSequence(executable, settings)
    text = check_text(ids, settings, sequence.capacity)
    given, targets = text[:-1], text[1:]
    number = sequence.begin()
    summed, chunk = 0.0, sequence.most_tokens("score")
    for start in range(0, len(given), chunk):
        sequence.require(number)
        part = given[start : start + chunk]
        sequence.place(part, start)
        executable.write(
            "targets", np.array(targets[start : start + chunk], dtype=np.int64), sequence.values(len(part))
        )
        sequence.run(("score", len(part)))
        summed += total(executable.read("nll", sequence.values(len(part))), "score", start)
        if progress is not None:
            progress(start + len(part), len(given))
    return Score(len(targets), summed / len(targets))


def check_text(ids: Ids, settings: TextSettings, capacity: int) -> list[int]:
    """The ids as integers. Raises PromptError for what cannot be scored: too few or too many tokens, or a wrong id."""
    given = [] if isinstance(ids, Sequence) and not ids else token_ids(ids, settings.vocabulary)
    if len(given) < 2:
        raise PromptError(f"the text has {counted(len(given), 'token')}", "a score needs at least two tokens")
    check_room(f"the text has {counted(len(given), 'token')}", len(given) - 1, capacity, settings)
    return given
