"""The parts of training a draft, in torch on the CPU at tiny sizes, against numpy references."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("torch", reason="training a draft needs torch, which kern itself does not")

import torch
from draft_training.acceptance import Acceptance, accepted_along, measure, walk
from draft_training.corpus import Corpus, CorpusError, Text, load_corpus
from draft_training.draft import Draft, DraftConfig, DraftError, draft_config
from draft_training.export import config_json, rounded, save_draft, stored_bytes
from draft_training.generation import Request, complete
from draft_training.objective import choose_anchors, distance
from draft_training.target import Target
from draft_training.training import Schedule, Step, train

from kern.checkpoints.config import Family, preset
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.models.speculation.draft import open_draft
from support.draft_reference import DraftReference
from support.reference import Reference
from support.tiny import SEED, prompt

CPU = torch.device("cpu")
TAPS = (0, 1, 2)
MASK = 511


@cache
def checkpoint(family: Family = "llama") -> RandomCheckpoint:
    return RandomCheckpoint(replace(preset(family, "tiny"), layers=4), SEED)


@cache
def target(family: Family = "llama") -> Target:
    return Target(checkpoint(family), CPU)


@cache
def reference(family: Family = "llama") -> Reference:
    return Reference(checkpoint(family).config, cache(checkpoint(family).tensor))


def shape(family: Family = "llama") -> DraftConfig:
    c = checkpoint(family).config
    return draft_config(c, layers=2, ffn=c.ffn, taps=TAPS, block=7, rank=16, mask=MASK)


def loud_draft(family: Family = "llama") -> Draft:
    """A random draft whose matrices keep the size of what they multiply, so that every part of it is heard."""
    draft = Draft.random(shape(family), SEED, CPU)
    scaled = {
        name: tensor.detach() * (tensor.shape[-1] ** -0.5 / 0.02 if tensor.ndim == 2 else 1.0)
        for name, tensor in draft.tensors.items()
    }
    return rounded(Draft(draft.config, scaled))


def draft_reference(draft: Draft, family: Family = "llama") -> DraftReference:
    theta = draft.config.transformer.rope_theta
    tensors = {name: tensor.numpy() for name, tensor in draft.tensors.items()}
    return DraftReference({**config_json(draft.config), "rope_theta": theta}, tensors, reference(family))


def blocks(draft: Draft, family: Family, ids: list[int], anchors: list[int]) -> torch.Tensor:
    """The draft's rows [anchors, block, hidden], all blocks in one pass."""
    traced = target(family).trace(torch.tensor([ids]), draft.config.taps)
    at = torch.tensor([anchors])
    anchor_ids = torch.tensor([[ids[anchor] for anchor in anchors]])
    return draft.hidden(at, anchor_ids, draft.context(traced.features), target(family).embedding)[0]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_the_target_is_the_references_at_once_and_step_by_step(family: Family) -> None:
    ids = prompt(23)
    traced = target(family).trace(torch.tensor([ids, ids[::-1]]), TAPS)
    outputs = reference(family).outputs(ids)
    features = np.concatenate([outputs[tap] for tap in TAPS], axis=1)
    np.testing.assert_allclose(traced.features[0].numpy(), features, rtol=1e-3, atol=1e-3)
    logits = reference(family).logits(ids)
    np.testing.assert_allclose(target(family).head(traced.hidden[0]).numpy(), logits, rtol=1e-3, atol=1e-3)
    stepper = target(family).stepper(1, len(ids))
    stepped = torch.cat([stepper.step(torch.tensor([id])) for id in ids]).numpy()
    np.testing.assert_allclose(stepped, logits, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_the_draft_is_the_references(family: Family) -> None:
    ids, anchors, draft = prompt(40, seed=3), [0, 1, 13, 33], loud_draft(family)
    expected = draft_reference(draft, family)
    rows = blocks(draft, family, ids, anchors)
    tokens = draft.chain(target(family).head(rows), torch.tensor([ids[anchor] for anchor in anchors]))
    for place, anchor in enumerate(anchors):
        wanted = expected.hidden(ids[:anchor], ids[anchor])
        np.testing.assert_allclose(rows[place].numpy(), wanted, rtol=2e-3, atol=2e-3)
        drafts, margins = expected.tokens(ids[:anchor], ids[anchor])
        if min(margins) > 1e-2:
            assert tokens[place].tolist() == drafts


def test_a_block_sees_what_is_before_its_anchor_and_nothing_else() -> None:
    draft, ids, anchor = loud_draft(), prompt(40), 20
    rows = blocks(draft, "llama", ids, [anchor, 30])
    later = ids[: anchor + 1] + prompt(40, seed=9)[anchor + 1 :]
    torch.testing.assert_close(blocks(draft, "llama", later, [anchor, 5])[0], rows[0])

    for place, seen in ((anchor - 1, True), (0, True), (anchor, False), (anchor + 1, False), (39, False)):
        traced = target().trace(torch.tensor([ids]), TAPS)
        traced.features[0, place] += 1.0
        at, anchor_ids = torch.tensor([[anchor]]), torch.tensor([[ids[anchor]]])
        changed = draft.hidden(at, anchor_ids, draft.context(traced.features), target().embedding)[0, 0]
        # Every row of the block, for attention within it has both directions.
        assert bool((changed - rows[0]).abs().amax(dim=-1).gt(1e-4).all()) == seen
        assert bool((changed - rows[0]).abs().amax() < 1e-5) != seen

    other = blocks(draft, "llama", [*ids[:anchor], (ids[anchor] + 1) % 512, *ids[anchor + 1 :]], [anchor])[0]
    assert bool((other - rows[0]).abs().amax(dim=-1).gt(1e-4).all()), "the anchor is seen by every row"


@given(
    texts=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 30)), min_size=1, max_size=5),
    count=st.integers(1, 40),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=50, deadline=None)
def test_anchors_are_where_a_completion_goes_on(texts: list[tuple[int, int]], count: int, seed: int) -> None:
    prompts = torch.tensor([before for before, _ in texts])
    lengths = torch.tensor([before + more for before, more in texts])
    chosen = choose_anchors(prompts, lengths, count, 7, torch.Generator().manual_seed(seed))
    ids = torch.arange(int(lengths.max())).repeat(len(texts), 1)
    labels, previous = chosen.labels(ids), chosen.previous(ids)
    for row, (before, more) in enumerate(texts):
        used = [place for place in range(chosen.valid.shape[1]) if bool(chosen.valid[row, place, 0])]
        positions = [int(chosen.positions[row, place]) for place in used]
        assert len(set(positions)) == len(positions) == min(count, more)
        assert all(before - 1 <= position <= before + more - 2 for position in positions)
        for place, position in zip(used, positions, strict=True):
            wanted = list(range(position + 1, min(position + 8, before + more)))
            assert labels[row, place][chosen.valid[row, place]].tolist() == wanted
            assert previous[row, place][chosen.valid[row, place]].tolist() == [label - 1 for label in wanted]


def test_the_distance_is_the_papers() -> None:
    rng = np.random.default_rng(0)
    drafted, wanted = rng.normal(size=(2, 12, 30)) * 2
    labels, places = rng.integers(0, 30, 12), np.arange(12) % 7

    def softmax(x: np.ndarray) -> np.ndarray:
        return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)

    found = distance(*(torch.from_numpy(x) for x in (drafted, wanted, labels, places)), 0.1)
    apart = np.abs(softmax(drafted) - softmax(wanted)).sum(axis=1)
    entropy = -np.log(softmax(drafted)[np.arange(12), labels])
    weights = np.exp(-places / 4)
    assert float(found.loss) == pytest.approx(np.sum(weights * (0.1 * entropy + 0.9 * apart)) / weights.sum())
    np.testing.assert_allclose(found.overlap.numpy(), np.minimum(softmax(drafted), softmax(wanted)).sum(axis=1))


def test_a_greedy_completion_is_the_references() -> None:
    prompts = [prompt(5, seed=1), prompt(9, seed=2)]
    texts = complete(target(), [Request("a", tuple(ids), 0.0) for ids in prompts], 6, (), seed=0)
    for ids, text in zip(prompts, texts, strict=True):
        wanted, margins = reference().greedy(ids, 6)
        sure = next((place for place, margin in enumerate(margins) if margin < 1e-2), 6)
        assert text.ids[: len(ids) + sure] == (*ids, *wanted[:sure])
        assert (text.prompt, len(text.ids), text.ended) == (len(ids), len(ids) + 6, False)


def test_a_completion_ends_with_a_stop_token_and_a_prompt_written_by_the_target_holds_none() -> None:
    stops = tuple(range(0, 512, 2))
    requests = [Request("free", (1,), 1.0, sampled=12) for _ in range(16)]
    texts = complete(target(), requests, 8, stops, seed=5)
    assert texts == complete(target(), requests, 8, stops, seed=5)
    assert texts != complete(target(), requests, 8, stops, seed=6)
    for text in texts:
        assert text.prompt == 13
        assert not set(text.ids[:13]) & set(stops)
        assert [id in stops for id in text.ids[13:]] == [False] * (len(text.ids) - 14) + [text.ended]
    assert any(text.ended for text in texts)
    assert len({text.ids for text in texts}) > 1


@given(st.lists(st.integers(0, 7), max_size=60))
def test_rounds_follow_each_other(accepted: list[int]) -> None:
    found, place, tokens, rounds = walk(np.array(accepted, dtype=np.int64), 7), 0, 0, 0
    while place < len(accepted):
        tokens, rounds, place = tokens + accepted[place] + 1, rounds + 1, place + accepted[place] + 1
    assert found.rounds == rounds
    assert found.tau == pytest.approx(tokens / rounds if rounds else 0.0)


def test_acceptance_by_place_is_of_the_rounds_that_reach_it() -> None:
    assert Acceptance((2, 1, 0, 1)).by_place == (0.5, 0.5, 1.0)


def test_what_is_accepted_is_what_the_reference_drafts() -> None:
    draft, ids = loud_draft(), tuple(prompt(24, seed=4))
    expected = draft_reference(draft)
    # The text goes on as the draft says at two of its anchors, for a random draft would hardly ever be right.
    for anchor, right in ((10, 3), (15, 7)):
        drafts, margins = expected.tokens(ids[:anchor], ids[anchor])
        assert min(margins[:right]) > 1e-3
        ids = (*ids[: anchor + 1], *drafts[:right], *ids[anchor + 1 + right :])
    accepted = accepted_along(target(), draft, Text("a", ids, 9, False))
    assert len(accepted) == 24 - 7 - 8
    assert accepted[10 - 8] >= 3
    assert accepted[15 - 8] == 7
    assert measure(target(), draft, [Text("a", ids, 9, False)])["a"] == walk(accepted, 7)


@pytest.mark.parametrize("length", range(10, 17))
def test_a_completion_too_short_for_a_round_has_none(length: int) -> None:
    text = Text("a", tuple(prompt(length, seed=4)), 9, True)

    assert len(accepted_along(target(), loud_draft(), text)) == max(0, length - 7 - 8)
    assert measure(target(), loud_draft(), [text])["a"].rounds == (1 if length == 16 else 0)


def test_training_brings_the_loss_down_and_acceptance_up(tmp_path: Path) -> None:
    requests = [Request("a", tuple(prompt(4, seed=seed)), 0.0) for seed in range(4)]
    texts = complete(target(), requests, 20, (), seed=0)
    draft, told = Draft.random(shape(), 0, CPU), list[Step]()
    before = sum(measure(target(), draft, texts).values(), Acceptance((0,) * 8)).tau
    schedule = Schedule(steps=40, batch=4, anchors=8, learning_rate=3e-3, seconds=120, seed=0)
    assert train(target(), draft, texts, schedule, told.append) == 40
    assert told[-1].loss < 0.5 * told[0].loss
    kept = rounded(draft)
    after = measure(target(), kept, texts)["a"].tau
    assert after > before + 0.25

    save_draft(tmp_path / "draft", draft, "card")
    opened = open_draft(tmp_path / "draft", checkpoint(), seed=0, taps_before=False)
    assert (opened.config.taps, opened.config.block, opened.config.rank, opened.config.mask) == (TAPS, 7, 16, MASK)
    assert opened.shared >= {"embedding", "lm_head"}
    for name, tensor in kept.tensors.items():
        np.testing.assert_array_equal(opened.tensors.tensor(name).astype(np.float32), tensor.numpy())


def test_training_ends_annealed_when_time_is_over() -> None:
    schedule = Schedule(steps=100, batch=1, anchors=1, learning_rate=1.0, seconds=10, seed=0)
    assert schedule.progress(step=1, elapsed=5) == 0.5
    assert schedule.progress(step=50, elapsed=1) == 0.5
    assert schedule.progress(step=1, elapsed=11) == 1
    assert schedule.rate(0.04) == pytest.approx(1.0)
    assert schedule.rate(0.02) == pytest.approx(0.5)
    assert schedule.rate(1.0) == pytest.approx(0.0)


def test_a_corpus_comes_back_as_it_was(tmp_path: Path) -> None:
    training = Text("chat", (1, 70000, 3), 2, True), Text("free", (4, 5), 1, False)
    corpus = Corpus(training, (Text("chat", (6, 7), 1, False),), {"a": 1})
    corpus.save(tmp_path / "c.npz")
    assert load_corpus(tmp_path / "c.npz") == corpus
    assert [path.name for path in tmp_path.iterdir()] == ["c.npz"]


@pytest.mark.parametrize("content", [b"", b"no zip at all", None])
def test_what_is_no_corpus_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "c.npz").write_bytes(content)
    with pytest.raises(CorpusError, match="make it with generate"):
        load_corpus(tmp_path / "c.npz")


def whole_corpus() -> dict[str, NDArray[Any]]:
    """The arrays of a file of two texts."""
    about = json.dumps({"kinds": ["chat"], "training": 1, "recipe": {}})
    return {
        "ids": np.array([1, 2, 3, 4, 5], np.uint32), "lengths": np.array([3, 2], np.uint32),
        "prompts": np.array([2, 1], np.uint32), "ended": np.array([True, False]), "kinds": np.zeros(2, np.uint8),
        "about": np.array(about),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "array", "says"),
    [
        ("ids", np.array([1, 2, 3, 4, -5]), "ids is int64"),
        ("ids", np.ones((1, 5), np.uint32), r"ids is uint32 \[1, 5\]"),
        ("ids", np.ones(4, np.uint32), "not of the same texts"),
        ("ids", np.array("abc"), "ids is <U3"),
        ("lengths", np.array([2**32 - 1, 2], np.uint32), "not of the same texts"),
        ("lengths", np.array([5], np.uint32), "not of the same texts"),
        ("lengths", np.array([5, 0], np.uint32), "without a completion"),
        ("prompts", np.array([0, 1], np.uint32), "without a prompt"),
        ("prompts", np.array([3, 1], np.uint32), "without a completion"),
        ("prompts", np.array([2.0, 1.0]), "prompts is float64"),
        ("ended", np.array(["a", "b"]), "ended is <U1"),
        ("kinds", np.array([0, 1], np.uint8), "texts of kind 1, and names 1"),
        ("about", np.array("[]"), "does not say what it holds"),
        ("about", np.array("{" * 9), "no corpus"),
        ("about", np.array("[" * 100_000), "no corpus"),
        ("about", np.array('{"kinds": "chat", "training": 1, "recipe": {}}'), "kinds are not a list"),
        ("about", np.array('{"kinds": [["chat"]], "training": 1, "recipe": {}}'), "kinds are not a list"),
        ("about", np.array('{"kinds": ["chat"], "training": 3, "recipe": {}}'), "2 texts, and 3 of them"),
        ("about", np.array('{"kinds": ["chat"], "training": -1, "recipe": {}}'), "2 texts, and -1 of them"),
        ("about", np.array('{"kinds": ["chat"], "training": 1, "recipe": null}'), "recipe is not an object"),
        ("kinds", None, "kinds"),
    ],
)
def test_arrays_that_are_no_texts_are_refused(tmp_path: Path, name: str, array: NDArray[Any] | None, says: str) -> None:
    path = tmp_path / "c.npz"
    np.savez_compressed(path, **whole_corpus())
    assert len(load_corpus(path).training) == 1
    np.savez_compressed(
        path, **{key: value for key, value in (whole_corpus() | {name: array}).items() if value is not None}
    )

    with pytest.raises(CorpusError, match=says):
        load_corpus(path)


def test_a_damaged_byte_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    texts = tuple(Text("chat", tuple(prompt(40, seed=seed)), 4, False) for seed in range(4))
    whole, damaged = tmp_path / "whole.npz", tmp_path / "damaged.npz"
    Corpus(texts[:3], texts[3:], {}).save(whole)
    content = whole.read_bytes()
    refused = 0
    for place in range(0, len(content), 3):
        damaged.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        try:
            assert load_corpus(damaged) == load_corpus(whole)
        except CorpusError:
            refused += 1
    assert refused > len(content) / 6


def test_a_fifo_is_no_corpus(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "c.npz")
    with pytest.raises(CorpusError, match="not a regular file"):
        load_corpus(tmp_path / "c.npz")


@pytest.mark.parametrize(
    "changes", [{"taps": (1, 3)}, {"taps": (2, 1)}, {"taps": ()}, {"taps": (1, 1)}, {"rank": 0}, {"mask": 512}]
)
def test_a_shape_that_cannot_be_is_refused(changes: dict[str, object]) -> None:
    good = {"layers": 1, "ffn": 256, "taps": (0, 2), "block": 7, "rank": 8, "mask": 5}
    assert stored_bytes(draft_config(checkpoint().config, **good)) > 0
    with pytest.raises(DraftError):
        draft_config(checkpoint().config, **{**good, **changes})
