"""Rounds of recorded texts, drafted again: how many tokens a draft with an error would have got right."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kern.engine.sequence import PagedSequence
from kern.engine.speculation import BEGIN
from kern.runtime.loading import load
from kern.text import Tokenizer
from support.host_driven import agreement
from support.spoken import Spoken

RECORD = Path(__file__).parents[1] / "samples" / "smollm2-rounds.json"
"""What the host device said, at most 256 tokens, after each of `support.held_out.FEW`, with its rounds."""


def recorded() -> list[Spoken]:
    """The texts of RECORD."""
    return [Spoken(**each) for each in json.loads(RECORD.read_text())]


def drafted_again(folder: Path, weights: Path, texts: Sequence[Spoken], every: int = 1) -> NDArray[np.int64]:
    """i64 [rounds, 2]: how many drafts were right in the rounds of each text, and are now.

    Of `every` so many rounds one is drafted, those left out whose drafts may reach past the text. The text says what is
    right, so the target need not check it: a round costs what its block costs.
    """
    found: list[tuple[int, int]] = []
    with load(folder, weights=weights, capacity=512) as executable:
        sequence = PagedSequence(executable, Tokenizer.load(folder).settings)
        block = executable.manifest.programs["draft"].symbols["tokens"].min
        assert block is not None
        for text in texts:
            ids = np.array([*text.prompt, *text.ids])
            sequence.begin()
            sequence.write_inputs(ids[:-1].tolist(), 0)
            sequence.run(("prefill", len(ids) - 1))
            anchors = len(text.prompt) - 1 + np.cumsum([0, *(count + 1 for count in text.accepted)])
            rounds = [each for each in zip(anchors, text.accepted, strict=False) if each[0] + block < len(ids)]
            # The last round first: a block leaves its own keys in the draft's state, from its anchor on.
            for anchor, before in reversed(rounds[::every]):
                sequence.write_inputs([int(ids[anchor])], int(anchor))
                sequence.run(BEGIN, ("draft", block))
                drafts = executable.read("round_tokens")[1 : block + 1]
                found.append((before, agreement(drafts, ids[anchor + 1 : anchor + block + 1])))
    return np.array(found)
