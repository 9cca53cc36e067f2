"""What a draft's programs leave on the host device, compared with the reference, on random weights.

Carries, the draft's state and logits; what is in workspaces between two launches may differ between devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kern.checkpoints.config import Family, preset
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from support.draft_pair import CAPACITY, Pair, near
from support.draft_reference import DraftReference, draft_config, draft_tensors
from support.reference import F32, Reference
from support.tiny import prompt

pytestmark = pytest.mark.usefixtures("compiled_once")

WITHIN = 0.03
"""Of a row's length: what rounding to bf16, by 2⁻⁹ of a value each time, adds up to."""
CONTEXTS = (0, 1, 13, 100)
Case = tuple[Family, dict[str, Any], tuple[str, ...]]
CASES: dict[str, Case] = {
    "of its target's family": ("qwen3", {}, ()),
    "with head norms, the target without": ("llama", {"num_hidden_layers": 3}, ()),
    "without head norms, the target with": ("qwen3", {"model_type": "llama", "num_hidden_layers": 1}, ("lm_head",)),
    "with a narrower mlp": ("llama", {"intermediate_size": 96}, ()),
    "with its own table and theta": ("llama", {"rope_theta": 1e4, "block_size": 3}, ("embed_tokens",)),
}


def made(folder: Path, case: Case, target: str = "host", **options: Any) -> Pair:
    family, changes, own = case
    checkpoint = RandomCheckpoint(replace(preset(family, "tiny"), layers=6, max_positions=CAPACITY), 7)
    model = Reference(checkpoint.config, cache(checkpoint.tensor))
    config = draft_config(model, **changes)
    reference = DraftReference(config, draft_tensors(config, 3, own), model)
    return Pair(folder, checkpoint, reference, target=target, **options)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> Iterator[Callable[[str], Pair]]:
    """A case's pair, built once."""
    pairs: dict[str, Pair] = {}

    def get(name: str) -> Pair:
        if name not in pairs:
            pairs[name] = made(tmp_path_factory.mktemp("pair"), CASES[name])
        return pairs[name]

    yield get
    for each in pairs.values():
        each.executable.close()


@pytest.mark.parametrize("length", CONTEXTS)
@pytest.mark.parametrize("case", CASES)
def test_every_intermediate_is_the_references(pair: Callable[[str], Pair], case: str, length: int) -> None:
    check_intermediates(pair(case), length)


def check_intermediates(p: Pair, length: int) -> None:
    reference, ids, anchor = p.reference, prompt(length, seed=length), 99
    p.prefill(ids)
    near(p.read("features", length), reference.features(ids), WITHIN)
    p.check_draft_state(ids, WITHIN)
    context = p.draft_state(length)
    p.begin(anchor, length)
    p.round("draft")

    np.testing.assert_array_equal(p.draft_state(length), context)
    near(p.block_logits(), reference.logits(ids, anchor), 2 * WITHIN)
    drafts = p.ids("round_tokens")
    assert drafts == [anchor, *p.read("round_logits", p.block).argmax(1).tolist()]
    _same_up_to_a_near_tie(drafts[1:], *reference.tokens(ids, anchor))


def _same_up_to_a_near_tie(got: list[int], want: list[int], margins: list[float]) -> None:
    first = next((i for i, pair in enumerate(zip(got, want, strict=True)) if pair[0] != pair[1]), None)
    assert first is None or margins[first] < 0.1


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("chunk", [1, 2, 5, 8])
def test_a_context_in_pieces_is_that_at_once(pair: Callable[[str], Pair], case: str, chunk: int) -> None:
    p, ids, anchor = pair(case), prompt(40, seed=5), 3

    def block(chunks: Sequence[int]) -> F32:
        p.prefill(ids, chunks)
        p.begin(anchor, len(ids))
        p.round("draft")
        return p.block_logits()

    near(block([chunk] * (40 // chunk)), block([40]), WITHIN)


def test_rounds_leave_the_state_that_a_prefill_of_their_tokens_would(pair: Callable[[str], Pair]) -> None:
    check_rounds(pair("of its target's family"))


def check_rounds(p: Pair) -> None:
    ids, anchor = prompt(21, seed=8), 40
    p.prefill(ids)
    p.begin(anchor, len(ids))
    text = [*ids, anchor]
    for _ in range(9):
        p.round("draft")
        p.check_draft_state(text[:-1], 2 * WITHIN)
        near(p.block_logits(), p.reference.logits(text[:-1], text[-1]), 2 * WITHIN)
        p.round("verify")
        drafts, predicted = (p.ids(name) for name in ("round_tokens", "predicted"))
        rows = [*text, *drafts[1:]]
        near(p.read("features", p.block + 1), p.reference.features(rows)[len(text) - 1 :], 2 * WITHIN)
        near(p.read("round_logits", p.block + 1), p.reference.target.logits(rows)[len(text) - 1 :], 2 * WITHIN)
        p.round("accept", "draft_precompute")
        taken = next((i for i in range(p.block) if drafts[i + 1] != predicted[i]), p.block)
        text += [*drafts[1 : taken + 1], predicted[taken]]
        assert p.ids("slot_position") == [len(text) - 1]


def test_taps_may_be_a_layer_earlier(tmp_path: Path) -> None:
    case: Case = ("qwen3", {"target_layer_ids": [1, 4]}, ())
    p, ids = made(tmp_path, case, taps_before=True), prompt(20)
    p.prefill(ids)

    near(p.read("features", 20), p.reference.features(ids, shift=-1), WITHIN)
    p.executable.close()
