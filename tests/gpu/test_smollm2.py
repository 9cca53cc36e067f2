"""SmolLM2-135M on a GPU: its tokens, logits and score compared with a float32 forward pass."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.test_smollm2 import LOGITS, OUTPUT_IDS, PARAGRAPH, PROMPT, PROMPT_IDS
from kern.engine import Generator, score
from kern.runtime.loading import load
from kern.text import Tokenizer
from support.agreement import Run, assert_agrees, assert_near, run
from support.reference import SMOLLM2_CONFIG, Reference, gguf_tensors

pytestmark = pytest.mark.gpu

STOP = 2
WITHIN = 0.03


@pytest.fixture(scope="module")
def reference(smollm2_gguf: Path) -> Reference:
    """The file's own tensors, q and k in their pairwise order: nothing of the export is in it."""
    return Reference(SMOLLM2_CONFIG, cache(gguf_tensors(smollm2_gguf)), pairwise=True)


@pytest.fixture(scope="module")
def usual(smollm2: Path) -> Run:
    """Graphs, fed by the host."""
    return run(smollm2, PROMPT_IDS, len(OUTPUT_IDS))


def test_the_tokens_are_the_references_or_part_at_a_near_tie(usual: Run, reference: Reference) -> None:
    measured = assert_agrees(usual, reference.logits, within=WITHIN, label="SmolLM2")

    assert list(usual.ids) == OUTPUT_IDS or measured.parted is not None
    before = len(OUTPUT_IDS) if measured.parted is None else measured.parted
    assert list(usual.ids)[:before] == OUTPUT_IDS[:before]


def test_the_first_logits_are_the_references(usual: Run) -> None:
    assert usual.logits[0][list(LOGITS)] == pytest.approx(list(LOGITS.values()), abs=0.15)


def test_single_launches_do_the_same_arithmetic(smollm2: Path, usual: Run) -> None:
    assert run(smollm2, PROMPT_IDS, len(OUTPUT_IDS), eager=True).same(usual)
    assert run(smollm2, PROMPT_IDS, len(OUTPUT_IDS), check=True).same(usual)


@pytest.mark.parametrize(("options", "capacity"), [({}, 4096), ({"eager": True}, 4096), ({}, 36)])
def test_tokens_that_stay_on_the_gpu_are_the_same(
    smollm2: Path, usual: Run, options: dict[str, Any], capacity: int
) -> None:
    with load(smollm2, capacity=capacity) as executable:
        generator = Generator(executable, Tokenizer.load(smollm2), **options)
        generation = generator.generate(PROMPT, max_tokens=len(OUTPUT_IDS), ignore_stop=True)
        text = "".join(token.text for token in generation)

    assert generation.prompt_ids == tuple(PROMPT_IDS)
    assert generation.output_ids == list(usual.ids)
    assert generation.text == text
    assert text.startswith(" Paris.")


@pytest.mark.parametrize("chunk", [1, 3])
def test_the_chunk_of_the_prefill_does_not_matter(smollm2: Path, usual: Run, reference: Reference, chunk: int) -> None:
    found = run(smollm2, PROMPT_IDS, len(OUTPUT_IDS), chunk=chunk)

    assert_near(usual, found, reference.logits, f"SmolLM2, chunk {chunk}")


def test_the_stop_token_ends_the_text(smollm2: Path, usual: Run) -> None:
    with load(smollm2) as executable:
        generation = Generator(executable, Tokenizer.load(smollm2)).generate(PROMPT, max_tokens=32)
        ids = [token.id for token in generation]

    print(f"{len(ids)} ids, ended by {generation.stop}")
    assert generation.stop == "stop_token"
    assert ids == list(usual.ids)[: list(usual.ids).index(STOP) + 1]
    assert "<|im_end|>" not in generation.text


def test_the_score_is_the_references(smollm2: Path, reference: Reference) -> None:
    tokenizer = Tokenizer.load(smollm2)
    ids = tokenizer.encode(PARAGRAPH)
    with load(smollm2, capacity=len(ids)) as executable:
        found, expected = score(executable, tokenizer.settings, ids).nll, reference.nll(ids)

    print(f"score {found:.4f}, in float32 {expected:.4f}")
    assert found == pytest.approx(expected, abs=0.02)
