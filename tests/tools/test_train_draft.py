"""The command that trains a draft, from a folder to a folder, on the CPU; and its prompts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="training a draft needs torch, which kern itself does not")

import torch
import train_draft
from draft_training.corpus import Corpus, Text, load_corpus
from draft_training.prompts import HELD_OUT, TRAINING, PromptError, held_out_requests, training_requests
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers

from kern.checkpoints.config import preset
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.contracts.text import DecodeBytes, TextSettings
from kern.models.speculation.draft import open_draft
from kern.text import Tokenizer
from support.hf_folder import save_model

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
WORDS = ("The", "Once", "Many", "Some", "Water", "After", "Since", "While")
CHECKPOINT = RandomCheckpoint(replace(preset("llama", "tiny"), layers=4), 7)


def library() -> Library:
    """One token a byte, and a few words that are one."""
    vocabulary = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<end>"]
    made = Library(models.BPE(vocab={letter: place for place, letter in enumerate(vocabulary)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<end>"])
    made.add_tokens(list(WORDS))
    return made


def tokenizer() -> Tokenizer:
    settings = TextSettings(
        vocabulary=512,
        positions=4096,
        embedding="embedding",
        stop_ids=(256,),
        bos=None,
        chat_template=TEMPLATE,
        tokenizer_sha256=None,
        decode_bytes=DecodeBytes(fixed=1, per_context_token=1),
    )
    return Tokenizer(settings, library().to_str())


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Call the script as the shell would, in this process: importing torch again each time takes seconds."""

    def call(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["train_draft.py", *map(str, arguments)])
        capsys.readouterr()
        return Done(train_draft.main(), *capsys.readouterr())

    return call


def refused(done: Done, code: int = 2) -> str:
    """What is said of a command that fails as it should."""
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    return done.err


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_model(tmp_path_factory.mktemp("model") / "tiny", CHECKPOINT)
    (folder / "tokenizer.json").write_text(library().to_str())
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = tuple(Text("chat", tuple((seed * 7 + place) % 500 for place in range(24)), 4, False) for seed in range(6))
    path = tmp_path_factory.mktemp("corpus") / "corpus.npz"
    Corpus(texts[:4], texts[4:], {"generation seed": 0}).save(path)
    return path


def test_a_draft_from_nothing_but_the_model(run: Run, model: Path, tmp_path: Path) -> None:
    generated = run(
        *("generate", model, "-o", tmp_path / "corpus.npz"),
        *("--texts", 12, "--held-out", 4, "--tokens", 12, "--batch", 8, "--minutes", 3),
    )
    assert generated.code == 0, generated.err
    made = load_corpus(tmp_path / "corpus.npz")
    assert (len(made.training), len(made.held_out)) == (12, 4)
    assert {text.kind for text in made.training} == {"chat", "opening", "free"}
    trained = run(
        *("train", model, tmp_path / "corpus.npz", "-o", tmp_path / "draft", "--taps", "0,2", "--ffn", 64, "--rank", 8),
        *("--mask-id", 500, "--steps", 3, "--batch", 4, "--anchors", 4, "--watched", 1, "--minutes", 3),
    )
    assert trained.code == 0, trained.err
    assert "accept_k" in trained.out
    assert "tokens per round on held-out prompts, 3 steps" in trained.out

    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.npz", "draft"]
    folder = tmp_path / "draft"
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    config = json.loads((folder / "config.json").read_text())
    assert (config["target_layer_ids"], config["num_target_layers"], config["intermediate_size"]) == ([0, 2], 4, 64)
    opened = open_draft(folder, CHECKPOINT, seed=0, taps_before=False)
    assert (opened.config.taps, opened.config.rank, opened.config.mask) == ((0, 2), 8, 500)
    card = (folder / "README.md").read_text()
    assert "12 completions by the target" in card
    assert "3 of 3 steps" in card
    assert "| all |" in card


def test_generating_ends_in_time(run: Run, model: Path, tmp_path: Path) -> None:
    done = run(
        *("generate", model, "-o", tmp_path / "corpus.npz", "--texts", 4, "--held-out", 1, "--tokens", 2),
        *("--minutes", 1e-6),
    )
    assert done.code == 2
    assert "no text to train on would have been made within 1e-06 minutes" in done.err
    assert not (tmp_path / "corpus.npz").exists()


def test_what_cannot_be_is_one_clear_error(run: Run, model: Path, corpus: Path, tmp_path: Path) -> None:
    output = ("-o", tmp_path / "draft", "--mask-id", 500, "--ffn", 64)
    assert "as in 1,2,1" in refused(run("train", model, corpus, *output, "--taps", "1,3"))
    assert "is not a list of layers" in refused(run("train", model, corpus, *output, "--taps", "one"))
    assert "more than 16,000,000" in refused(run("train", model, corpus, *output, "--taps", 1, "--rank", 10**30))
    endless = ("-o", tmp_path / "corpus.npz", "--texts", 8, "--held-out", 2, "--tokens", 10**9)
    assert "are more than the model's 4,096 positions; give at most" in refused(run("generate", model, *endless))
    assert "more than 16,000,000" in refused(run("train", model, corpus, *output, "--taps", 1, "--rank", 20000))
    assert "a multiple of 8" in refused(run("train", model, corpus, *output, "--taps", 1, "--ffn", 60), code=1)
    assert "no corpus" in refused(run("train", model, __file__, *output))
    assert "is there already" in refused(run("train", model, corpus, "-o", corpus))
    assert "cannot read" in refused(run("train", tmp_path / "nothing.gguf", corpus, *output))
    for written in (corpus / "draft", "/proc/draft"):
        assert "draft cannot be written: /" in refused(run("train", model, corpus, "-o", written))
        assert "draft cannot be written: /" in refused(run("generate", model, "-o", written))
    assert "over before training begins" in refused(
        run("train", model, corpus, *output, "--taps", 1, "--minutes", 1e-6)
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", [("--seed", 2**32), ("--seed", -1), ("--learning-rate", 2), ("--minutes", "inf")])
def test_numbers_out_of_bounds_are_usage_errors(
    model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], run: Run, option: tuple[str, object]
) -> None:
    with pytest.raises(SystemExit) as end:
        run("train", model, corpus, "-o", tmp_path / "draft", *option)
    assert end.value.code == 2
    assert f"argument {option[0]}: invalid number" in capsys.readouterr().err


def test_a_training_that_went_astray_writes_nothing(
    run: Run, model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def astray(target: object, draft: Any, *rest: object) -> int:
        with torch.no_grad():
            draft.tensors["fc.weight"][0, 0] = torch.nan
        return 1

    monkeypatch.setattr(train_draft, "train", astray)
    options = ("--taps", 1, "--ffn", 64, "--rank", 8, "--mask-id", 500)
    assert "a smaller --learning-rate" in refused(run("train", model, corpus, "-o", tmp_path / "draft", *options))
    assert not list(tmp_path.iterdir())


def test_a_model_without_a_tokenizer_generates_nothing(run: Run, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "tiny", CHECKPOINT)
    assert "has no tokenizer" in refused(run("generate", folder, "-o", tmp_path / "corpus.npz"))


def test_prompts_are_different_seeded_and_apart_from_those_held_out() -> None:
    text = tokenizer()
    made, held_out = training_requests(text, 300, seed=1), held_out_requests(text, 60, seed=1)
    assert made == training_requests(text, 300, seed=1)
    assert made != training_requests(text, 300, seed=2)
    assert {request.temperature for request in made} == {0.0, 0.6}
    assert {request.temperature for request in held_out} == {0.0}
    keys = [(request.ids, request.sampled) for request in (*made, *held_out)]
    assert len(set(keys)) == 360
    begun = [{request.ids for request in each if request.kind == "free"} for each in (made, held_out)]
    assert not begun[0] & begun[1]
    for part in ("topics", "chats", "openings"):
        assert not set(getattr(TRAINING, part)) & set(getattr(HELD_OUT, part))


def test_more_prompts_than_there_are_cannot_be_had() -> None:
    for count in (5000, 10**12):
        with pytest.raises(PromptError, match="fewer than"):
            held_out_requests(tokenizer(), count, seed=0)
