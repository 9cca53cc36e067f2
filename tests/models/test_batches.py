"""Any split of sequences into calls gives each what float32 says of it alone, and changes the state of no other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kern.checkpoints.config import Family, preset
from kern.contracts.text import PAGE
from kern.runtime.loading import load
from support.batch import Batch, assert_as_alone
from support.call_plans import PAGES, Plan
from support.tiny import tiny_reference

WITHIN = 0.03
CALLS = 60


@pytest.mark.parametrize("seed", range(5))
def test_any_split_into_calls_gives_each_sequence_what_it_has_alone(tiny: Path, seed: int) -> None:
    family: Family = "llama" if tiny.name == "llama" else "qwen3"
    with load(tiny, capacity=PAGES * PAGE, sequences=8) as executable:
        batch = Batch(executable, PAGES, watched=preset(family, "tiny"))
        plan = Plan(batch, np.random.default_rng(seed))
        texts = plan.run(CALLS)

    assert plan.called == {"prefill", "begin", "decode", "step"}
    assert len(texts) > 8
    assert any(len(text.chosen) > 8 for text in texts)
    for text in texts:
        label = f"{tiny.name}, seed {seed}, {len(text.prompt)} tokens"
        assert_as_alone(text, tiny_reference(tiny).logits, within=WITHIN, label=label)
