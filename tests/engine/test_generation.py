"""Tiny models end to end on the host device: every way of running gives the reference's tokens."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kern.contracts.text import ContractError, TextSettings
from kern.engine import Generator, score
from kern.engine.calls import Superseded
from kern.engine.sequence import PromptError
from kern.runtime.loading import load
from kern.text import Tokenizer
from kern.text.tokenizer import NoTokenizer
from support import host_driven
from support.greedy import assert_greedy, assert_same
from support.tiny import prompt, tiny_reference, without_feedback

PROMPT = prompt(45)


def generate(folder: Path, ids: list[int], count: int, *, capacity: int = 256, **options: Any) -> list[int]:
    with load(folder, capacity=capacity) as executable:
        generator = host_driven.generator(executable, Tokenizer.load(folder), **options)
        return [token.id for token in generator.generate(ids, max_tokens=count)]


@pytest.mark.parametrize("length", [1, 2, 16, 17, 70])
def test_the_reference_would_choose_the_same_tokens(tiny: Path, length: int) -> None:
    ids = generate(tiny, prompt(length, seed=length), 24)

    assert_greedy(tiny_reference(tiny), prompt(length, seed=length), ids)


@pytest.mark.parametrize("options", [{"eager": True}, {"host": True}, {"host": True, "eager": True}, {"capacity": 69}])
def test_the_same_arithmetic_gives_the_same_tokens(tiny: Path, options: dict[str, Any]) -> None:
    assert generate(tiny, PROMPT, 24, **options) == generate(tiny, PROMPT, 24)


@pytest.mark.parametrize(("number", "text"), [("1", "1 thread"), ("3", "3 threads")])
def test_the_number_of_threads_does_not_matter(
    tiny: Path, number: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = generate(tiny, PROMPT, 24)
    monkeypatch.setenv("KERN_THREADS", number)

    with load(tiny, capacity=64) as executable:
        assert executable.device.description.endswith(f", {text}")
    assert generate(tiny, PROMPT, 24) == usual


@pytest.mark.parametrize("chunk", [1, 7, 16, 44, 512])
def test_the_chunk_of_the_prefill_does_not_matter(tiny: Path, chunk: int) -> None:
    whole, chunked = generate(tiny, PROMPT, 24), generate(tiny, PROMPT, 24, chunk=chunk)

    assert_same(tiny_reference(tiny), PROMPT, whole, chunked)


def test_a_manifest_without_begin_is_driven_by_the_host(tiny: Path, tmp_path: Path) -> None:
    folder = without_feedback(tiny, tmp_path / tiny.name)

    # Its first token comes from `decode` in place of `step`.
    assert_same(tiny_reference(tiny), PROMPT, generate(folder, PROMPT, 24), generate(tiny, PROMPT, 24))


@pytest.mark.parametrize("host", [False, True])
def test_generation_ends_where_the_capacity_ends(tiny: Path, host: bool) -> None:
    usual = generate(tiny, PROMPT, 60)
    with load(tiny, capacity=53) as executable:
        generator = host_driven.generator(executable, Tokenizer.load(tiny), host=host)
        generation = generator.generate(PROMPT, max_tokens=60)
        ids = [token.id for token in generation]

        # The tokens after positions 44 to 52; the last one needs no room.
        assert generation.stop == "length"
        assert ids == usual[:9]
        assert executable.read("slot_position")[0] == 53


def test_a_stop_token_ends_the_text_and_is_its_last_id(tiny: Path) -> None:
    usual = generate(tiny, PROMPT, 24)
    stop = next(id for id in usual[3:] if id not in usual[:3])
    settings = Tokenizer.load(tiny).settings.model_copy(update={"stop_ids": (stop,)})
    with load(tiny, capacity=256) as executable:
        generator = Generator(executable, Tokenizer(settings, None))
        stopped = generator.generate(PROMPT, max_tokens=24)
        ids = [token.id for token in stopped]
        ignored = [token.id for token in generator.generate(PROMPT, max_tokens=24, ignore_stop=True)]

    assert stopped.stop == "stop_token"
    assert ids == stopped.output_ids == usual[: usual.index(stop) + 1]
    assert ignored == usual


def test_an_executable_generates_repeatedly(tiny: Path) -> None:
    with load(tiny, capacity=256) as executable:
        generator = Generator(executable, Tokenizer.load(tiny))
        first = generator.generate(PROMPT, max_tokens=24)
        list(first)
        list(generator.generate(prompt(100, seed=5), max_tokens=10))
        again = generator.generate(PROMPT, max_tokens=24)
        list(again)

    assert first.output_ids == again.output_ids


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("intruder", ["another generation", "another generator", "a score", "a prefill"])
def test_a_generation_that_lost_its_state_is_an_error(tiny: Path, host: bool, intruder: str) -> None:
    tokenizer = Tokenizer.load(tiny)
    with load(tiny, capacity=256) as executable:
        generator = host_driven.generator(executable, tokenizer, host=host)
        first = generator.generate(PROMPT)
        next(first)
        if intruder == "another generation":
            next(generator.generate(PROMPT))
        elif intruder == "another generator":
            next(Generator(executable, tokenizer).generate(prompt(9, seed=2)))
        elif intruder == "a score":
            score(executable, tokenizer.settings, prompt(9, seed=2))
        else:
            generator.prefill(prompt(9, seed=2))

        with pytest.raises(Superseded):
            next(first)


def test_executables_have_separate_states(tiny: Path) -> None:
    tokenizer = Tokenizer.load(tiny)
    with load(tiny, capacity=256) as one, load(tiny, capacity=256) as other:
        first = Generator(one, tokenizer).generate(PROMPT, max_tokens=6)
        second = Generator(other, tokenizer).generate(PROMPT, max_tokens=6)

        assert all(a.id == b.id for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([], "empty"),
        ([5, 512], "512 at index 1 is out of range"),
        ([-1], "-1 at index 0"),
        (prompt(33), "33 tokens; the capacity is 32"),
    ],
)
def test_a_prompt_that_cannot_be_run_is_refused(tiny: Path, ids: list[int], says: str) -> None:
    with load(tiny, capacity=32) as executable:
        generator = Generator(executable, Tokenizer.load(tiny))

        with pytest.raises(PromptError, match=says) as caught:
            generator.generate(ids)

    assert caught.value.exit_code == 2


def test_text_needs_a_tokenizer(tiny: Path) -> None:
    with load(tiny, capacity=32) as executable:
        generator = Generator(executable, Tokenizer.load(tiny))

        with pytest.raises(NoTokenizer):
            generator.generate("hello")


@pytest.mark.parametrize("chunk", [0, -3, 513, 10**30])
def test_a_chunk_out_of_range_is_refused(tiny: Path, chunk: int) -> None:
    with load(tiny, capacity=32) as executable, pytest.raises(PromptError) as caught:
        Generator(executable, Tokenizer.load(tiny), chunk=chunk)
    assert caught.value.exit_code == 2
    assert f"the chunk is {chunk} tokens; give 1 to 512, the limit of program prefill" in str(caught.value)


def test_the_default_chunk_fits_the_folder(tiny: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny, tmp_path / tiny.name))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["programs"]["prefill"]["symbols"] = {"tokens": {"max": 40}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with load(folder, capacity=64) as executable:
        assert Generator(executable, Tokenizer.load(folder)).graphs[0] == ("prefill", 40)
        with pytest.raises(PromptError, match="give 1 to 40"):
            Generator(executable, Tokenizer.load(folder), chunk=41)


def test_the_capacity_is_no_more_than_the_model_has_positions(tiny: Path) -> None:
    with load(tiny, capacity=5000) as executable:
        generator = Generator(executable, Tokenizer.load(tiny))

        assert generator.capacity == 4096
        with pytest.raises(PromptError, match="the model has 4096 positions"):
            generator.generate([1] * 4097)
        with pytest.raises(PromptError, match="the model has 4096 positions"):
            score(executable, generator.settings, [1] * 4098)
    with load(tiny, capacity=32) as executable, pytest.raises(PromptError, match="load with a larger capacity"):
        Generator(executable, Tokenizer.load(tiny)).generate([1] * 33)


@pytest.mark.parametrize(
    ("edit", "lacks"),
    [
        ({"vocabulary": 513}, "weight embedding: 513 rows"),
        ({"vocabulary": 10**9}, "weight embedding: 1000000000 rows"),
        ({"embedding": "table"}, "weight table: 512 rows"),
        ({"embedding": "token_ids"}, "weight token_ids: 512 rows"),
        ({"positions": 4097}, "pages up to 257 for 4097 positions"),
    ],
)
def test_settings_beyond_the_manifest_are_refused(tiny: Path, edit: dict[str, Any], lacks: str) -> None:
    usual = Tokenizer.load(tiny).settings
    tokenizer = Tokenizer(
        TextSettings.model_validate_json(json.dumps(json.loads(usual.model_dump_json()) | edit)), None
    )
    with load(tiny, capacity=32) as executable:
        with pytest.raises(ContractError, match=lacks):
            Generator(executable, tokenizer)
        with pytest.raises(ContractError, match=lacks):
            score(executable, tokenizer.settings, [1, 2])


def test_everything_missing_from_the_contract_is_listed(tiny: Path, tmp_path: Path) -> None:
    folder = without_feedback(tiny, tmp_path / tiny.name)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["programs"] = {"step": manifest["programs"]["decode"]} | {
        name: manifest["programs"][name] for name in ("score", "nll")
    }
    text = json.dumps(manifest).replace('"next_token"', '"choice"')
    (folder / "manifest.json").write_text(text)

    with load(folder, capacity=32) as executable, pytest.raises(ContractError) as caught:
        Generator(executable, Tokenizer.load(folder))

    for missing in ("program prefill", "program decode", "output next_token: i64 [seqs]"):
        assert missing in caught.value.message
