"""Scores of tiny models against the reference."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from kern.contracts.text import ContractError
from kern.engine import Generator, score
from kern.engine.calls import Superseded
from kern.engine.sequence import PromptError
from kern.runtime.loading import load
from kern.text import Tokenizer
from support.tiny import prompt, tiny_reference


@pytest.mark.parametrize("length", [2, 64, 65, 66, 150, 512, 513, 514, 600])
def test_the_score_is_the_references(tiny: Path, length: int) -> None:
    ids = prompt(length, seed=length)
    with load(tiny, capacity=length - 1) as executable:
        result = score(executable, Tokenizer.load(tiny).settings, ids)

    assert result.tokens == length - 1
    assert result.nll == pytest.approx(tiny_reference(tiny).nll(ids), abs=0.02)
    assert result.perplexity == pytest.approx(math.exp(result.nll))


@pytest.mark.parametrize(
    ("ids", "says"),
    [([], "the text has 0 tokens"), ([3], "the text has 1 token;"), (prompt(34), "capacity is 32"), ([3, 512], "512")],
)
def test_a_text_that_cannot_be_scored_is_refused(tiny: Path, ids: list[int], says: str) -> None:
    with load(tiny, capacity=32) as executable, pytest.raises(PromptError, match=says):
        score(executable, Tokenizer.load(tiny).settings, ids)


def test_a_manifest_without_the_program_is_refused(tiny: Path, tmp_path: Path) -> None:
    folder = tmp_path / tiny.name
    shutil.copytree(tiny, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["programs"]["score"], manifest["programs"]["nll"], manifest["kernels"]["token_nll"]
    for buffer in ("targets", "nll", "scored", "scored_logits"):
        del manifest["buffers"][buffer]
    (folder / "manifest.json").write_text(json.dumps(manifest))

    with load(folder, capacity=32) as executable, pytest.raises(ContractError, match="program score") as caught:
        score(executable, Tokenizer.load(folder).settings, prompt(5))

    assert "output nll: f32 [seqs]" in caught.value.message


def test_a_score_that_lost_its_state_is_an_error(tiny: Path) -> None:
    tokenizer = Tokenizer.load(tiny)
    with load(tiny, capacity=1024) as executable:
        generator = Generator(executable, tokenizer)

        def intrude(done: int, total: int) -> None:
            generator.prefill([1])

        with pytest.raises(Superseded):
            score(executable, tokenizer.settings, prompt(600), progress=intrude)
