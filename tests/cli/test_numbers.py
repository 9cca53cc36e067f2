"""Numbers that are none, on the command line: one error after what was right, and JSON that is always valid."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cli.conftest import Kern
from kern.cli.outputs import json_text
from kern.device.host.device import HostDevice
from kern.engine.scoring import Score
from support.chain import write_chain


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, compiled_once: None) -> Path:
    """Nothing can be chosen after "5"."""
    return write_chain(tmp_path_factory.mktemp("broken") / "model", broken=20)


def strict(text: str) -> Any:
    """JSON by its specification: Python's own reader takes NaN too."""

    def refuse(word: str) -> NoReturn:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_run_gives_what_was_right_and_ends_in_one_error(kern: Kern, broken: Path) -> None:
    done = kern("run", broken, "--prompt", "123", "--max-tokens", 40)
    assert (done.code, done.out) == (1, "45\n")
    assert "kern: error[unusable-logits]: NaN or +inf in the logits of `decode` at position 4 (or -inf for" in done.err
    assert " every id)\nhelp: " in done.err
    assert "Traceback" not in done.err
    done = kern("run", broken, "--prompt", "123", "--max-tokens", 40, "--json")
    assert (done.code, done.json.keys(), done.json["error"]["code"]) == (1, {"error"}, "unusable-logits")
    assert "at position 4" in done.err
    assert kern("run", broken, "--prompt", "123", "--max-tokens", 2).code == 0


def test_a_score_without_numbers_is_an_error(kern: Kern, broken: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("4567")
    for more in ([], ["--json"]):
        done = kern("score", broken, "--text", tmp_path / "text", *more)
        assert (done.code, "perplexity" in done.out) == (1, False)
        assert "kern: error[unusable-logits]: NaN in the nll of `score` at position 1\nhelp: " in done.err
        assert "Traceback" not in done.err


def test_a_benchmark_of_a_broken_model_is_an_error(kern: Kern, tmp_path: Path, compiled_once: None) -> None:
    folder = write_chain(tmp_path / "model", broken=0)
    done = kern("bench", folder, "--steps", 100, "--json")
    assert (done.code, done.json.keys()) == (1, {"error"})
    assert "NaN or +inf in the logits of `decode` at position " in done.err


def test_a_perplexity_too_large_is_absent(kern: Kern, tmp_path: Path, compiled_once: None) -> None:
    (tmp_path / "text").write_text("4589")
    for gain, banned, nll in ((4096.0, None, pytest.approx(4096 * math.sqrt(128) / 3, rel=2e-3)), (1.0, 23, None)):
        folder = write_chain(tmp_path / f"model{gain}", gain=gain, banned=banned)
        found = strict(kern("score", folder, "--text", tmp_path / "text", "--json").out)
        assert found == {"tokens": 3, "nll": nll, "perplexity": None}
        done = kern("score", folder, "--text", tmp_path / "text")
        assert done.code == 0
        assert done.out.endswith("nats per token, perplexity too large\n")


@pytest.mark.parametrize("nll", [709.7827, 709.7828, 1e300, math.inf])
def test_a_perplexity_is_a_number_as_long_as_there_is_one(nll: float) -> None:
    perplexity = Score(1, nll).perplexity
    assert perplexity == (pytest.approx(1.7976e308, rel=1e-3) if nll < 709.7828 else None)


def test_every_number_that_json_has_no_word_for_is_null() -> None:
    value = {"a": math.nan, "b": [math.inf, 1, (-math.inf, 2.5)], "c": {"d": math.nan}, "e": "NaN", "f": True}
    expected = {"a": None, "b": [None, 1, [None, 2.5]], "c": {"d": None}, "e": "NaN", "f": True}
    for indent in (None, 1):
        assert strict(json_text(value, indent)) == expected
    assert strict(json_text(math.inf)) is None


def test_measurements_that_are_none_are_null_in_the_json_of_a_benchmark(
    kern: Kern, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HostDevice, "read_bandwidth", lambda self: math.inf)
    found = strict(kern("bench", tiny, "--steps", 8, "--capacity", 64, "--json").out)
    assert found["read_bandwidth"] is None
    assert found["bandwidth_share"] == 0
