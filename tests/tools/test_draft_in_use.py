"""A trained draft in a folder that kern runs accepts what training said that it would."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="training a draft needs torch, which kern itself does not")

import torch
from draft_training.acceptance import Acceptance, measure
from draft_training.corpus import Text
from draft_training.draft import Draft, draft_config
from draft_training.export import rounded, save_draft
from draft_training.generation import Request, complete
from draft_training.target import Target
from draft_training.training import Schedule, train
from safetensors.torch import load_file

import kern
from kern.building.build import build
from kern.building.options import BuildOptions
from kern.checkpoints.config import preset
from kern.checkpoints.gguf_checkpoint import GgufCheckpoint
from kern.checkpoints.random_checkpoint import RandomCheckpoint
from kern.engine import Generator
from kern.text import Tokenizer
from support.hf_folder import save_model
from support.recorded_rounds import recorded
from support.tiny import prompt

CHECKPOINT = RandomCheckpoint(replace(preset("llama", "tiny"), layers=4), 7)
TOKENS = 40


@pytest.mark.usefixtures("compiled_once")
def test_rounds_on_the_host_device_are_those_that_were_measured(tmp_path: Path) -> None:
    target = Target(CHECKPOINT, torch.device("cpu"))
    prompts = [prompt(4, seed=seed) for seed in range(4)]
    texts = complete(target, [Request("a", tuple(ids), 0.0) for ids in prompts], TOKENS, (), seed=0)
    config = draft_config(CHECKPOINT.config, layers=2, ffn=64, taps=(0, 1, 2), block=7, rank=16, mask=511)
    draft = Draft.random(config, 0, target.device)
    train(target, draft, texts, Schedule(40, 4, 16, 3e-3, 120, 0), lambda step: None)
    save_draft(tmp_path / "draft", draft, "card")

    save_model(tmp_path / "model", CHECKPOINT)
    build(
        BuildOptions("llama", checkpoint=tmp_path / "model", draft=tmp_path / "draft", target="host"),
        tmp_path / "built",
    )
    with kern.load(tmp_path / "built", capacity=64) as executable:
        generator = Generator(executable, Tokenizer.load(tmp_path / "built"), spec=True)
        generations = [generator.generate(ids, max_tokens=TOKENS, ignore_stop=True) for ids in prompts]
        for each in generations:
            assert len(list(each)) == TOKENS
    # Along what was really said, for the two may part at a near-tie of the target's.
    said = [Text("a", (*ids, *each.output_ids), 4, False) for ids, each in zip(prompts, generations, strict=True)]
    measured = measure(target, rounded(draft), said)["a"]
    # The last round of each is left out of what is measured: what follows its drafts is not known.
    counts = [sum(each.accepted.count(accepted) for each in generations) for accepted in range(8)]
    assert measured.tau > 1.3
    assert Acceptance(tuple(counts)).tau == pytest.approx(measured.tau, rel=0.15)


def test_the_trained_draft_was_accepted_in_use_as_it_is_measured(smollm2_gguf: Path, smollm2_draft: Path) -> None:
    checkpoint = GgufCheckpoint(smollm2_gguf)
    config = draft_config(checkpoint.config, layers=2, ffn=576, taps=(1, 14, 27), block=7, rank=32, mask=16)
    tensors = load_file(smollm2_draft / "model.safetensors")
    draft = Draft(config, {name: tensor.float() for name, tensor in tensors.items()})
    target = Target(checkpoint, torch.device("cpu"))
    for text in recorded()[:3]:
        said = Text(text.kind, (*text.prompt, *text.ids), len(text.prompt), False)
        measured = measure(target, draft, [said])[text.kind]
        # The last rounds are left out of what is measured: what follows their drafts is not known.
        rounds = text.accepted[: measured.rounds]
        assert measured.tau == pytest.approx(1 + sum(rounds) / len(rounds), rel=0.05)
