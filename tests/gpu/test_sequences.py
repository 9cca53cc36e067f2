"""Several sequences at once on a GPU, their pages scattered over the pool: each as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from kern.checkpoints.config import Family, preset
from kern.contracts.text import PAGE
from kern.runtime.executable import Executable
from kern.runtime.loading import load
from support.batch import Batch, Text, assert_as_alone
from support.call_plans import PAGES as PLANNED_PAGES
from support.call_plans import Plan
from support.tiny import prompt, tiny_reference

pytestmark = pytest.mark.gpu

LENGTHS = {3: (5, 33, 100), 8: (2, 16, 17, 48, 64, 65, 3, 120), 24: (*range(1, 24), 120)}
COUNT = 40
PAGES = 10
WITHIN = 0.03
FAMILIES: Sequence[Family] = ("llama", "qwen3")


def loaded(folder: Path, sequences: int) -> Executable:
    return load(folder, capacity=PAGES * PAGE, sequences=sequences, sharing=False)


def texts_of(sequences: int) -> list[Text]:
    """A prompt of another length for each sequence, its slot, and its pages, scattered over the pool."""
    rng = np.random.default_rng(sequences)
    pages, slots = rng.permutation(sequences * PAGES).reshape(sequences, PAGES), rng.permutation(sequences)
    return [
        Text(prompt(length, seed=length), int(slot), table.tolist())
        for length, slot, table in zip(LENGTHS[sequences], slots, pages, strict=True)
    ]


def generated(
    executable: Executable,
    texts: list[Text],
    *,
    together: bool = False,
    graph: bool = False,
    rows: Callable[[list[Text]], list[Text | None]] = list,
) -> list[Text]:
    """COUNT greedy steps of all texts at once, in these rows; `together`: their prefill is one call as well."""
    executable.clear("kv")
    batch = Batch(executable, PAGES, graph=graph)
    parts = [(text, len(text.prompt) - 1) for text in texts if len(text.prompt) > 1]
    for call in [parts] if together else [[part] for part in parts]:
        batch.ragged("prefill", call)
    batch.begin(texts)
    for _ in range(COUNT):
        batch.decode(rows(texts))
    return texts


def shuffled(texts: list[Text]) -> list[Text | None]:
    """Other rows in each call, padding rows between them."""
    rng = np.random.default_rng()
    rows = [*texts, *[None] * (8 - len(texts))]
    return [rows[at] for at in rng.permutation(len(rows))]


@pytest.mark.parametrize("sequences", [3, 8])
@pytest.mark.parametrize("family", FAMILIES)
def test_each_sequence_runs_as_if_it_were_alone(tiny_folder: Callable[..., Path], family: str, sequences: int) -> None:
    folder = tiny_folder(family, sequences)
    with loaded(folder, sequences) as executable:
        whole = generated(executable, texts_of(sequences))
        others = {
            "replayed": generated(executable, texts_of(sequences), graph=True),
            "in other rows": generated(executable, texts_of(sequences), rows=shuffled) if sequences == 8 else whole,
            "alone": [generated(executable, [text])[0] for text in texts_of(sequences)],
        }
        fewer = generated(executable, texts_of(sequences)[1:3], rows=shuffled if sequences == 8 else list)

    for how, runs in others.items():
        for seq, text in enumerate(runs):
            assert text.run.same(whole[seq].run), f"sequence {seq} {how}"
    for text, same in zip(fewer, whole[1:3], strict=True):
        assert text.run.same(same.run)
    for text in whole:
        label = f"{family}, one of {sequences}, {len(text.prompt)} tokens"
        assert_as_alone(text, tiny_reference(folder).logits, within=WITHIN, label=label)


@pytest.mark.parametrize("sequences", LENGTHS)
@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_of_several_sequences_in_one_call(
    tiny_folder: Callable[..., Path], family: str, sequences: int
) -> None:
    folder = tiny_folder(family, sequences)
    with loaded(folder, sequences) as executable:
        for text in generated(executable, texts_of(sequences), together=True):
            label = f"{family}, prefilled with {sequences - 1} others, {len(text.prompt)} tokens"
            assert_as_alone(text, tiny_reference(folder).logits, within=WITHIN, label=label)


@pytest.mark.parametrize("sequences", [8, 24])
@pytest.mark.parametrize("family", FAMILIES)
def test_any_split_into_calls_gives_each_sequence_what_it_has_alone(
    tiny_folder: Callable[..., Path], family: Family, sequences: int
) -> None:
    folder = tiny_folder(family, sequences)
    with load(folder, capacity=PLANNED_PAGES * PAGE, sequences=sequences) as executable:
        plan = Plan(Batch(executable, PLANNED_PAGES, watched=preset(family, "tiny")), np.random.default_rng(sequences))
        texts = plan.run(100)

    assert plan.called == {"prefill", "begin", "decode", "step"}
    for text in texts:
        label = f"{family}, one of {sequences}, {len(text.prompt)} tokens"
        assert_as_alone(text, tiny_reference(folder).logits, within=WITHIN, label=label)
