"""Logits and tokens on a GPU against transformers' own model in float32, tiny and at the widths of real models."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kern.checkpoints.config import FAMILIES, Family
from support.agreement import F32, Logits, assert_agrees, run

if TYPE_CHECKING:
    from gpu.conftest import Model

pytestmark = pytest.mark.gpu

FIRST, WITHIN = 0.02, 0.03
"""Of the first row of logits, and of any: what rounding to bf16, by 2⁻⁹ of a value each time, adds up to.

A kernel that is wrong somewhere is off by a whole row.
"""
LENGTHS = (1, 64, 600)
COUNT = 32


def transformers_model(folder: Path) -> Any:
    """The folder's model in float32 on the GPU, with nothing rounded to fewer bits on the way."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.set_float32_matmul_precision("highest")
    found = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    )
    return found.to("cuda").eval()


@cache
def references(folder: Path) -> Logits:
    """Its logits."""
    torch = pytest.importorskip("torch")
    model = transformers_model(folder)

    def logits(ids: Sequence[int]) -> F32:
        with torch.inference_mode():
            rows: F32 = model(torch.tensor([list(ids)], device=model.device)).logits[0].float().cpu().numpy()
        return rows

    return logits


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Any:
    """The models go with the module."""
    yield
    references.cache_clear()
    gc.collect()


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("size", ["tiny", "wide"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_tokens_are_those_of_transformers(
    model: Callable[[Family, str], Model], family: Family, size: str, length: int
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    pair = model(family, size)
    reference = references(pair.checkpoint)
    vocabulary = reference([0]).shape[-1]
    ids = np.random.default_rng(length).integers(0, vocabulary, length).tolist()

    found = run(pair.artifact, ids, COUNT)

    measured = assert_agrees(found, reference, within=WITHIN, label=f"{size} {family}, {length} tokens")
    assert measured.first <= FIRST
