"""A text model opened from Python: one call from a folder to generators and scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from kern.artifact import open_folder
from kern.engine import Generator, open_model, score
from kern.runtime.loading import load
from kern.text import Tokenizer
from kern.text.tokenizer import NoTokenizer
from support.talking_toy import ids_of, text_of, write_talker
from support.toy_speculation import POSITIONS, ROWS, continuation


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talker(tmp_path_factory.mktemp("model") / "toy")


def test_a_model_generates_with_and_without_its_draft(toy: Path) -> None:
    follows = continuation(ids_of("hello"), 2 * ROWS)
    with open_model(toy) as model:
        for spec in (False, True):
            generation = model.generator(spec=spec, eager=True).generate("hello", max_tokens=2 * ROWS)
            assert "".join(token.text for token in generation) == text_of(follows)
            assert generation.accepted == [ROWS - 1] * (2 * spec)


@pytest.mark.parametrize(("asked", "capacity"), [(32, 32), (10**6, POSITIONS)])
def test_the_capacity_is_limited_to_the_positions_of_the_model(toy: Path, asked: int, capacity: int) -> None:
    with open_model(toy, capacity=asked) as model:
        assert model.executable.capacity == model.generator().capacity == capacity
        assert model.settings.positions == POSITIONS


def test_a_model_scores_ids_and_text_where_it_has_a_tokenizer(tiny: Path) -> None:
    with open_model(tiny, capacity=64) as model:
        assert model.score([1, 2, 3]) == score(model.executable, model.settings, [1, 2, 3])
        with pytest.raises(NoTokenizer):
            model.score("hello")


def test_an_open_folder_stays_open_and_a_model_can_be_closed(toy: Path) -> None:
    with open_folder(toy) as folder:
        model = open_model(folder, tokenizer=Tokenizer.load(folder), capacity=32)
        assert folder.manifest_bytes() == (toy / "manifest.json").read_bytes()
    assert len(list(model.generator().generate("hello", max_tokens=3))) == 3
    model.close()
    with pytest.raises(Exception, match="closed"):
        model.generator()
    with load(toy, capacity=32) as executable:
        Generator(executable, model.tokenizer)
