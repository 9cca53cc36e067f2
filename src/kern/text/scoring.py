"""How likely a model finds a text: the number that tells a right model from a wrong one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kern.manifest.counts import counted
from kern.runtime.executable import Executable
from kern.text.checks import check_scoring
from kern.text.sequence import PagedSequence, PromptError, check_ids, check_room
from kern.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Score:
    """`tokens` are those predicted, all but the first; `nll` is their mean negative log-likelihood in nats."""

    tokens: int
    nll: float

    @property
    def perplexity(self) -> float:
        """exp(nll)."""
        return math.exp(self.nll)


def score(
    executable: Executable,
    tokenizer: Tokenizer,
    text: str | Sequence[int],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Score:
    """Score a text, or token ids, of at least two tokens.

    `progress` is told the tokens predicted and their total. Raises ContractError where the manifest cannot
    score, PromptError for a text too short, longer than the capacity, or with an id out of range; Superseded where
    another text is begun in the executable meanwhile.
    """
    check_scoring(executable.manifest, tokenizer.settings)
    ids = tokenizer.encode(text) if isinstance(text, str) else text
    sequence = PagedSequence(executable, tokenizer.settings)
    check_text(ids, tokenizer, sequence.capacity)
    given, targets = ids[:-1], ids[1:]
    number = sequence.begin()
    total, chunk = 0.0, sequence.most_tokens("score")
    for start in range(0, len(given), chunk):
        sequence.require(number)
        part = given[start : start + chunk]
        sequence.place(part, start)
        executable.write("targets", np.asarray(targets[start : start + chunk], dtype=np.int64))
        sequence.run(("score", len(part)))
        total += float(np.sum(executable.read("nll")[: len(part)], dtype=np.float64))
        if progress is not None:
            progress(start + len(part), len(given))
    return Score(len(targets), total / len(targets))


def check_text(ids: Sequence[int], tokenizer: Tokenizer, capacity: int) -> None:
    """Raises PromptError for what cannot be scored: too few or too many tokens, or an id out of range."""
    check_ids(ids, tokenizer)
    if len(ids) == 1:
        raise PromptError("the text has one token", "a score needs at least two")
    check_room(f"the text has {counted(len(ids), 'token')}", len(ids) - 1, capacity, tokenizer.settings)
