"""SmolLM2 with its trained draft on a GPU: fifty texts, driven in two ways, compared with plain decoding."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from kern.building.build import build
from kern.building.options import BuildOptions
from kern.runtime.loading import load
from kern.text import Tokenizer
from support.held_out import PROMPTS
from support.reference import SMOLLM2_CONFIG, Reference, gguf_tensors
from support.spoken import Spoken, assert_parts_at_near_ties, by_kind, speak, tokens_a_round

pytestmark = pytest.mark.gpu

MOST = 256


@pytest.fixture(scope="module")
def folder(
    smollm2_gguf: Path, smollm2_draft: Path, architecture: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """SmolLM2's folder with its draft."""
    path = tmp_path_factory.mktemp("trained") / "smollm2"
    build(BuildOptions("smollm2", checkpoint=smollm2_gguf, draft=smollm2_draft, target=architecture), path)
    return path


def said(folder: Path, **options: bool) -> list[Spoken]:
    """What follows every prompt."""
    with load(folder, capacity=512) as executable:
        return speak(executable, Tokenizer.load(folder), PROMPTS, MOST, **options)


@pytest.fixture(scope="module")
def speculated(folder: Path) -> list[Spoken]:
    """Rounds that follow one another on the GPU."""
    return said(folder, spec=True)


def test_two_tokens_a_round_and_more(speculated: list[Spoken]) -> None:
    print(by_kind(speculated))

    assert tokens_a_round(speculated) >= 2.0


def test_rounds_that_the_host_judges_are_the_same(folder: Path, speculated: list[Spoken]) -> None:
    assert said(folder, spec=True, host=True) == speculated


def test_fifty_texts_are_those_of_plain_decoding_up_to_near_ties(
    folder: Path, smollm2_gguf: Path, speculated: list[Spoken]
) -> None:
    reference = Reference(SMOLLM2_CONFIG, cache(gguf_tensors(smollm2_gguf)), pairwise=True)
    plain = said(folder)
    print(f"{sum(a.ids == b.ids for a, b in zip(plain, speculated, strict=True))} of {len(plain)} texts are the same")

    for ours, theirs in zip(plain, speculated, strict=True):
        assert_parts_at_near_ties(folder, ours, theirs, reference.logits)
