"""What a model says after prompts, speculating or not: tokens per round, and where two texts differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kern.runtime.executable import Executable
from kern.text import Tokenizer
from support import host_driven
from support.agreement import Logits, agreement, run
from support.held_out import Kind, Prompt


@dataclass(frozen=True)
class Spoken:
    """The ids that followed a prompt, and how many drafts each round accepted, if there were rounds."""

    kind: Kind
    prompt: Sequence[int]
    ids: Sequence[int]
    accepted: Sequence[int]


def speak(
    executable: Executable, tokenizer: Tokenizer, prompts: Iterable[Prompt], most: int, **options: Any
) -> list[Spoken]:
    """At most `most` tokens after each prompt, up to a stop token; `options` are the generator's."""
    generator, found = host_driven.generator(executable, tokenizer, **options), []
    for prompt in prompts:
        generation = generator.generate(prompt.ids(tokenizer), max_tokens=most)
        for _ in generation:
            pass
        found.append(Spoken(prompt.kind, generation.prompt_ids, generation.output_ids, generation.accepted))
    return found


def tokens_a_round(spoken: Sequence[Spoken]) -> float:
    """Tokens of the texts per round, without those of a last round past the end."""
    return sum(len(each.ids) for each in spoken) / sum(len(each.accepted) for each in spoken)


def by_kind(spoken: Sequence[Spoken]) -> str:
    """A line with the tokens per round of each kind of prompt, and of all."""
    kinds = dict.fromkeys(each.kind for each in spoken)
    parts = [f"{kind} {tokens_a_round([each for each in spoken if each.kind == kind]):.2f}" for kind in kinds]
    return f"{len(spoken)} texts, tokens per round: {', '.join(parts)}, all {tokens_a_round(spoken):.2f}"


def assert_parts_at_near_ties(folder: Path, plain: Spoken, other: Spoken, logits: Logits) -> None:
    """`other` says what plain decoding does, up to where the model itself is all but undecided.

    The measure is float32's: from the first token that differs on, none that `other` chose is further below the best
    than twice what the plain run's own logits are off by (one may be too low by as much as the other is too high).
    """
    count = min(len(plain.ids), len(other.ids))
    parted = next((step for step in range(count) if plain.ids[step] != other.ids[step]), None)
    if parted is None:
        assert list(plain.ids) == list(other.ids)
        return
    error = agreement(run(folder, plain.prompt, len(plain.ids)), logits).error
    rows = logits([*other.prompt, *other.ids])[len(other.prompt) - 1 : -1]
    margins = rows.max(axis=1) - rows[np.arange(len(rows)), list(other.ids)]
    between = abs(float(rows[parted][plain.ids[parted]] - rows[parted][other.ids[parted]]))
    print(
        f"{plain.kind}: parted at token {parted} of {len(other.ids)}, by {between:.4f}; "
        f"chosen at most {margins.max():.4f} below the best; logits off by {error:.4f}"
    )
    assert between <= 2 * error
    assert margins.max() <= 2 * error
