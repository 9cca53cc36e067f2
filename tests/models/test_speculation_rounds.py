"""Rounds that accept every number of drafts: a target that depends on the last token alone, and its Markov head.

The draft's layers add too little to its logits to change a token, and are compared separately: what they see of the
text is right only if every round left the features of the accepted rows, at their positions, and of no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from kern.checkpoints.config import preset
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.contracts.text import round_calls
from support.draft_pair import CAPACITY, Pair, near
from support.draft_reference import DraftReference, draft_config, draft_tensors
from support.reference import Reference

WITHIN = 0.05
CONFIG = replace(preset("qwen3", "tiny"), layers=4, vocabulary=4096, max_positions=CAPACITY)
TAKEN = (0, 7, 3, 1, 6, 2, 5, 4)
"""Drafts that are accepted in the rounds of a text that begins with the oracle's first token."""
MARGIN = 0.02
"""The margin of the next token over the second best: more than rounding and the draft's layers change."""


@dataclass(frozen=True)
class LastTokenOnly(RandomCheckpoint):
    """A model whose layers add nothing: what follows a token depends on that token alone."""

    def tensor(self, name: str) -> NDArray[Any]:
        found = super().tensor(name)
        return np.zeros_like(found) if name.endswith(("o_proj.weight", "down_proj.weight")) else found


@dataclass(frozen=True)
class Oracle:
    """What follows each token; after `first`, the rounds accept as many drafts as TAKEN lists."""

    pair: Pair
    following: NDArray[np.int64]
    first: int

    def text(self, tokens: list[int], count: int) -> list[int]:
        for _ in range(count):
            tokens = [*tokens, int(self.following[tokens[-1]])]
        return tokens


def _path(following: NDArray[np.int64], clear: NDArray[np.bool_], first: int) -> list[int]:
    """The tokens from `first` on until one comes again, or one after which it is not clear what follows."""
    path = [first]
    while clear[path[-1]] and (token := int(following[path[-1]])) not in path:
        path.append(token)
    return path


def made(folder: Path, target: str, **options: Any) -> Oracle:
    checkpoint = LastTokenOnly(CONFIG, 7)
    model = Reference(CONFIG, cache(checkpoint.tensor))
    config = draft_config(model, target_layer_ids=[0, 2], markov_rank=CONFIG.hidden)
    embedding, norm, head = (
        checkpoint.tensor(f"{name}.weight").astype(np.float32)
        for name in ("model.embed_tokens", "model.norm", "lm_head")
    )
    scale = np.sqrt((embedding**2).mean(axis=1, keepdims=True) + CONFIG.norm_eps)
    rows = (embedding / scale * norm).astype(ml_dtypes.bfloat16)
    logits = rows.astype(np.float32) @ head.T
    following, best = logits.argmax(axis=1), np.sort(logits, axis=1)
    clear = best[:, -1] - best[:, -2] > MARGIN
    path = max((_path(following, clear, first) for first in range(CONFIG.vocabulary)), key=len)
    assert len(path) > sum(TAKEN) + len(TAKEN) + 8
    wrong = [path[i - 1] for i in np.cumsum([taken + 1 for taken in TAKEN])]
    known = np.arange(CONFIG.vocabulary)
    # As if they were another token.
    known[wrong] = next(t for t in known if clear[t] and following[t] not in following[wrong])
    little = np.random.default_rng(4).normal(0, CONFIG.hidden**-0.5 / 1024, (CONFIG.vocabulary, CONFIG.hidden))
    tensors = draft_tensors(config, 3) | {
        "lm_head.weight": little.astype(ml_dtypes.bfloat16),
        "markov_head.markov_w1.weight": rows[known],
        "markov_head.markov_w2.weight": checkpoint.tensor("lm_head.weight"),
    }
    pair = Pair(folder, checkpoint, DraftReference(config, tensors, model), target=target, **options)
    return Oracle(pair, following, path[0])


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> Iterator[Oracle]:
    found = made(tmp_path_factory.mktemp("oracle"), "host")
    yield found
    found.pair.executable.close()


@pytest.mark.parametrize("length", [0, 1, 13, 15, 16, 29])
def test_every_length_of_accepted_drafts_leaves_the_right_round(oracle: Oracle, length: int) -> None:
    check_rounds(oracle, length)


def check_rounds(oracle: Oracle, length: int) -> None:
    p, prompt = oracle.pair, np.random.default_rng(length).integers(0, 500, length).tolist()
    whole = oracle.text([*prompt, oracle.first], 60)
    p.prefill(prompt)
    p.begin(oracle.first, length)
    start = length
    for rounds, taken in enumerate(TAKEN, 1):
        p.round("draft")
        p.check_draft_state(whole[:start], WITHIN)
        near(p.block_logits(), p.reference.logits(whole[:start], whole[start]), WITHIN)
        drafts = p.ids("round_tokens")
        assert drafts[: taken + 1] == whole[start : start + taken + 1]
        assert taken == p.block or drafts[taken + 1] != whole[start + taken + 1]
        p.round("verify")
        assert p.ids("predicted")[: taken + 1] == whole[start + 1 : start + taken + 2]
        p.round("accept", "draft_precompute")
        start += taken + 1
        assert p.ids("accepted")[0][:rounds] == list(TAKEN[:rounds])
        assert (p.ids("slot_position"), p.ids("round_count")) == ([start], [rounds])
        ring = p.ids("token_ring")[0]
        assert [ring[i % 64] for i in range(length, start + 1)] == whole[length : start + 1]


def test_rounds_past_the_capacity_disturb_nothing_before_it(oracle: Oracle) -> None:
    check_capacity(oracle)


def check_capacity(oracle: Oracle) -> None:
    p, length = oracle.pair, CAPACITY - 20
    whole = oracle.text([7] * length + [oracle.first], 21)
    p.prefill(whole[:length])
    p.begin(whole[length], length)
    tokens: list[int] = []
    while len(tokens) < 60:
        before = p.ids("slot_position")[0]
        p.round()
        ring = p.ids("token_ring")[0]
        tokens += [ring[i % 64] for i in range(before + 1, p.ids("slot_position")[0] + 1)]

    assert tokens[:20] == whole[length + 1 : CAPACITY + 1]


def test_a_round_of_one_graph_is_the_programs_one_by_one(oracle: Oracle) -> None:
    check_graph(oracle)


def check_graph(oracle: Oracle) -> None:
    p, length = oracle.pair, 9
    whole = oracle.text([7] * length + [oracle.first], 60)
    calls = [(name, p.values(tokens)) for name, tokens in round_calls(p.block + 1)]
    p.prefill(whole[:length])
    p.begin(whole[length], length)
    graph = p.executable.graph(calls)
    for _ in range(6):
        graph.launch()
    reached, ring = p.ids("slot_position")[0], p.ids("token_ring")[0]

    assert p.ids("accepted")[0][:7] == [*TAKEN[:6], 0]
    assert [ring[i % 64] for i in range(length, reached + 1)] == whole[length : reached + 1]
