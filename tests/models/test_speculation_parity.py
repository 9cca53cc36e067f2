"""Every intermediate of a draft on the host device, beside the reference, on random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kern
from kern.models.build import build
from kern.models.config import Family, preset
from kern.models.random_checkpoint import RandomCheckpoint
from kern.runtime.executable import Executable
from support.draft_reference import DraftReference, draft_config, draft_tensors, save_draft
from support.hf_folder import save_model
from support.reference import F32, Reference
from support.tiny import prompt

pytestmark = pytest.mark.usefixtures("compiled_once")

WITHIN = 0.03
"""Of a row's length: what rounding to bf16, by 2⁻⁹ of a value each time, adds up to."""
CAPACITY = 128
CONTEXTS = (0, 1, 13, 100)
Case = tuple[Family, dict[str, Any], tuple[str, ...]]
CASES: dict[str, Case] = {
    "of its target's family": ("qwen3", {}, ()),
    "with head norms, the target without": ("llama", {"num_hidden_layers": 3}, ()),
    "without head norms, the target with": ("qwen3", {"model_type": "llama", "num_hidden_layers": 1}, ("lm_head",)),
    "with a table and a theta of its own": ("llama", {"rope_theta": 1e4, "block_size": 3}, ("embed_tokens",)),
}


class Pair:
    """A target and a draft, built and loaded, beside their reference."""

    def __init__(self, folder: Path, case: Case, **options: Any) -> None:
        family, changes, own = case
        checkpoint = RandomCheckpoint(replace(preset(family, "tiny"), layers=6, max_positions=CAPACITY), 7)
        target = Reference(checkpoint.config, cache(checkpoint.tensor))
        config = draft_config(target, **changes)
        self.reference = DraftReference(config, draft_tensors(config, 3, own), target)
        model = save_model(folder / "model", checkpoint)
        draft = save_draft(folder / "draft", config, self.reference.tensors)
        build(family, folder / "built", checkpoint=model, target="host", draft=draft, **options)
        self.block = int(config["block_size"])
        self.executable: Executable = kern.load(folder / "built", capacity=CAPACITY, sharing=False)
        pages = CAPACITY // 16
        self.executable.write("block_table", np.arange(pages, dtype=np.int32)[::-1].reshape(1, -1).copy())
        self.pages = pages

    def run(self, program: str, tokens: int) -> None:
        self.executable.run(program, {"tokens": tokens, "seqs": 1, "pages": self.pages})

    def place(self, ids: Sequence[int], start: int) -> None:
        positions = np.arange(start, start + len(ids))
        write, last = self.executable.write, CAPACITY // 16 - 1
        write("token_ids", np.array(ids, np.int64))
        write("positions", positions)
        write("slot_mapping", (last - positions // 16) * 16 + positions % 16)
        write("seq_lens", np.array([start + len(ids)], np.int32))
        write("cu_seqlens_q", np.array([0, len(ids)], np.int32))

    def prefill(self, ids: Sequence[int], chunks: Sequence[int] | None = None) -> None:
        start = 0
        for chunk in chunks or ([len(ids)] if ids else []):
            self.place(ids[start : start + chunk], start)
            self.run("prefill", chunk)
            start += chunk
        assert start == len(ids)

    def begin(self, anchor: int, position: int) -> None:
        self.place([anchor], position)
        self.run("begin_spec", 1)

    def read(self, name: str, rows: int) -> F32:
        found = np.asarray(self.executable.read(name))
        return found[:rows].astype(np.float32)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> Iterator[Callable[[str], Pair]]:
    """A case's pair, built once."""
    made: dict[str, Pair] = {}

    def get(name: str) -> Pair:
        if name not in made:
            made[name] = Pair(tmp_path_factory.mktemp("pair"), CASES[name])
        return made[name]

    yield get
    for each in made.values():
        each.executable.close()


def near(got: F32, want: F32, within: float = WITHIN) -> None:
    """Each row off by less than this part of its length."""
    assert got.shape == want.shape
    wrong, size = (np.linalg.norm(x.reshape(len(x), -1), axis=1) for x in (got - want, want))
    assert (wrong <= within * size).all(), f"a row is off by {(wrong / size).max():.2%}"


@pytest.mark.parametrize("length", CONTEXTS)
@pytest.mark.parametrize("case", CASES)
def test_every_intermediate_is_the_references(pair: Callable[[str], Pair], case: str, length: int) -> None:
    p = pair(case)
    reference, ids, anchor = p.reference, prompt(length, seed=length), 99
    p.prefill(ids)
    if length:
        last = reference.config["num_hidden_layers"] - 1
        keys, values = reference.keys_and_values(last, ids)
        near(p.read("features", length), reference.features(ids))
        near(p.read("context", length), reference.context(ids))
        near(p.read("context_kv", length), np.concatenate([keys, values], axis=1).reshape(length, -1))
    p.begin(anchor, length)
    p.run("draft_precompute", p.block + 1)
    p.run("draft", p.block)

    near(p.read("normed", p.block), reference.hidden(ids, anchor), 2 * WITHIN)
    drafts = np.asarray(p.executable.read("round_tokens")).tolist()
    logits = p.read("logits", p.block)
    biased = np.stack([u + reference.bias(t) for u, t in zip(reference.logits(ids, anchor), drafts, strict=False)])
    near(logits, biased, 2 * WITHIN)
    assert drafts == [anchor, *logits.argmax(1).tolist()]
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
        p.run("draft_precompute", p.block + 1)
        p.run("draft", p.block)
        return p.read("normed", p.block)

    near(block([chunk] * (40 // chunk)), block([40]))


def test_rounds_leave_the_state_that_a_prefill_of_their_tokens_would(pair: Callable[[str], Pair]) -> None:
    p, ids, anchor = pair("of its target's family"), prompt(21, seed=8), 40
    p.prefill(ids)
    p.begin(anchor, len(ids))
    text = [*ids, anchor]
    for _ in range(9):
        p.run("draft_precompute", p.block + 1)
        p.run("draft", p.block)
        near(p.read("normed", p.block), p.reference.hidden(text[:-1], text[-1]), 2 * WITHIN)
        p.run("verify", p.block + 1)
        drafts, predicted = (np.asarray(p.executable.read(n)).tolist() for n in ("round_tokens", "predicted"))
        rows = [*text, *drafts[1:]]
        near(p.read("features", p.block + 1), p.reference.features(rows)[len(text) - 1 :], 2 * WITHIN)
        near(p.read("logits", p.block + 1), p.reference.target.logits(rows)[len(text) - 1 :], 2 * WITHIN)
        p.run("accept", p.block + 1)
        taken = next((i for i in range(p.block) if drafts[i + 1] != predicted[i]), p.block)
        text += [*drafts[1 : taken + 1], predicted[taken]]
        assert np.asarray(p.executable.read("step_position")).tolist() == [len(text) - 1]


def test_taps_may_stand_a_layer_earlier(tmp_path: Path) -> None:
    case: Case = ("qwen3", {"target_layer_ids": [1, 4]}, ())
    p, ids = Pair(tmp_path, case, taps_before=True), prompt(20)
    p.prefill(ids)

    near(p.read("features", 20), p.reference.features(ids, shift=-1))
    p.executable.close()
