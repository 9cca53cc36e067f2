"""`kern run --spec` and `kern bench --spec`: what they print, and one line where it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Kern
from kern.cli import bench
from support.toy_speculation import continuation, spoiling, write_toy

PROMPT = [3, 10, 17]
ACCEPTS = [7, 0, 3, 7]
RUN = ("--prompt-ids", "3,10,17", "--max-tokens", 21, "--capacity", 128)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy(tmp_path_factory.mktemp("cli") / "toy", spoiling(len(PROMPT), ACCEPTS))


@pytest.mark.parametrize("first", [False, True])
def test_run_says_what_was_accepted(kern: Kern, toy: Path, first: bool) -> None:
    options = ["--spec", toy] if first else [toy, "--spec"]
    found = kern("run", *options, *RUN, "--json").json

    assert found["output_ids"] == continuation(PROMPT, 21) == kern("run", toy, *RUN, "--json").json["output_ids"]
    assert found["spec"] == {"rounds": 4, "tokens_per_round": 21 / 4, "accepted": ACCEPTS}


def test_rounds_are_reported_in_words_too(kern: Kern, toy: Path) -> None:
    done = kern("run", toy, *RUN, "--spec")
    assert [int(word) for word in done.out.split()] == continuation(PROMPT, 21)
    assert "4 rounds of speculation, 5.25 tokens each" in done.err
    assert "round of 8" in done.err
    assert "speculation," not in kern("run", toy, *RUN).err


def test_a_text_too_short_for_a_round_has_none(kern: Kern, toy: Path) -> None:
    short = kern("run", toy, *RUN[:4], "--capacity", 9, "--spec", "--json").json
    assert short["spec"] == {"rounds": 0, "tokens_per_round": None, "accepted": []}
    assert short["output_ids"] == continuation(PROMPT, 7)


def test_bench_sets_rounds_beside_plain_steps(kern: Kern, toy: Path) -> None:
    found = kern("bench", toy, "--spec", "--steps", 6, "--capacity", 512, "--json").json
    rounds, step = found["spec"], found["decode"]["ms_per_token"]

    assert set(rounds) == {
        *("rounds", "tokens_per_round", "acceptance", "ms_per_round", "p10", "p90"),
        *("tokens_per_second", "round_per_step", "speedup", "idle_us_per_round"),
    }
    assert rounds["rounds"] == 6
    assert len(rounds["acceptance"]) == 7
    assert rounds["round_per_step"] == pytest.approx(rounds["ms_per_round"] / step)
    assert rounds["speedup"] == pytest.approx(rounds["tokens_per_round"] / rounds["round_per_step"])
    assert "spec" not in kern("bench", toy, "--steps", 6, "--capacity", 512, "--json").json


def test_bench_reports_rounds_in_words(kern: Kern, toy: Path) -> None:
    done = kern("bench", toy, "--spec", "--steps", 6, "--capacity", 512)
    for word in ("ms/round", "x a decode step", "per round", "x plain decoding", "of the rounds, by position"):
        assert word in done.out


def test_a_capacity_too_small_for_a_round_is_reported_before_the_measuring(
    kern: Kern, toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "benchmark", None)
    done = kern("bench", toy, "--spec", "--capacity", 150)
    assert (done.code, done.out) == (2, "")
    assert "the capacity is 150; timing one round takes 151" in done.err


@pytest.mark.parametrize("command", [["run", "--prompt-ids", "1,2,3"], ["bench"]])
def test_a_folder_without_a_draft_is_one_line(kern: Kern, tiny: Path, command: list[str]) -> None:
    done = kern(*command, tiny, "--spec")
    assert (done.code, done.out) == (1, "")
    assert (
        "kern: error[text-contract]: this folder has no draft model to speculate with\nhelp: build it with" in done.err
    )
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (["--spec", "host"], "Got unexpected extra argument(s) (host)"),
        (["--spec=host"], "Option '--spec' does not take a value"),
    ],
)
@pytest.mark.parametrize("command", [["run", *RUN[:2]], ["bench"], ["chat"]])
def test_a_value_is_a_usage_error(kern: Kern, toy: Path, command: list[str], spec: list[str], says: str) -> None:
    done = kern(command[0], toy, *command[1:], *spec)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert "Traceback" not in done.err
