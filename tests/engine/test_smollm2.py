"""SmolLM2-135M on the host device: its tokens, logits and score are those of a float32 forward."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kern.engine import Generator, score
from kern.runtime.loading import load
from kern.text import Tokenizer, chat_prompt
from kern.text.chat import Message, render
from support import host_driven
from support.reference import SMOLLM2_CONFIG, Reference, gguf_tensors

PROMPT = "The capital of France is"
PROMPT_IDS = [504, 3575, 282, 4649, 314]
OUTPUT_IDS = [
    7042, 30, 198, 198, 504, 2988, 314, 42, 216, 34, 32, 33, 40, 29, 32, 33,
    29, 34, 34, 216, 33, 34, 42, 33, 34, 42, 37, 35, 30, 2, 198, 1,
]  # fmt: skip
"""Greedy ids in float32; the 30th is the stop token."""
LOGITS = {7042: 17.37126, 260: 14.88859, 4528: 13.24498, 2250: 13.00946, 1315: 12.95152}
"""The five greatest after the prompt, in float32."""
PARAGRAPH = (
    "The library stood at the end of a narrow street, and for 112 years nobody had counted its books. When Marta "
    "was asked to do it, she began with the smallest room: three shelves of atlases, a globe without its stand, "
    "and a cat that slept on the catalogue. By Friday she had reached 4,096 volumes and lost her pencil twice."
)


@pytest.fixture(scope="module")
def reference(smollm2_gguf: Path) -> Reference:
    """The file's own tensors, q and k in their pairwise order: nothing of the export is in it."""
    return Reference(SMOLLM2_CONFIG, cache(gguf_tensors(smollm2_gguf)), pairwise=True)


def test_the_prompt_has_the_ids_it_had_in_training(smollm2: Path) -> None:
    tokenizer = Tokenizer.load(smollm2)

    assert tokenizer.encode(PROMPT) == PROMPT_IDS
    assert tokenizer.decode(PROMPT_IDS) == PROMPT
    assert tokenizer.encode("1234") == tokenizer.encode("1") + tokenizer.encode("2") + [35, 36]


@pytest.mark.parametrize(
    ("options", "capacity"),
    [({}, 4096), ({"eager": True}, 4096), ({"chunk": 1}, 4096), ({"host": True}, 4096), ({}, 37)],
)
def test_the_tokens_are_the_references(smollm2: Path, options: dict[str, Any], capacity: int) -> None:
    with load(smollm2, capacity=capacity) as executable:
        generator = host_driven.generator(executable, Tokenizer.load(smollm2), **options)
        generation = generator.generate(PROMPT, max_tokens=32, ignore_stop=True)
        pieces = [token.text for token in generation]

    assert generation.output_ids == OUTPUT_IDS
    assert generation.stop == "length"
    assert "".join(pieces) == generation.text
    assert generation.text.startswith(" Paris.\n\nThe answer is")


def test_the_stop_token_ends_the_text(smollm2: Path) -> None:
    with load(smollm2) as executable:
        generation = Generator(executable, Tokenizer.load(smollm2)).generate(PROMPT, max_tokens=32)
        ids = [token.id for token in generation]

    assert ids == OUTPUT_IDS[:30]
    assert generation.stop == "stop_token"


def test_one_thread_gives_the_same_tokens(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERN_THREADS", "1")
    with load(smollm2) as executable:
        generation = Generator(executable, Tokenizer.load(smollm2)).generate(PROMPT, max_tokens=32, ignore_stop=True)

        assert executable.device.description.endswith(", 1 thread")
        assert [token.id for token in generation] == OUTPUT_IDS


def test_the_first_logits_are_the_references(smollm2: Path) -> None:
    with load(smollm2, sharing=False) as executable:
        next(Generator(executable, Tokenizer.load(smollm2)).generate(PROMPT))
        logits = executable.read("logits", {"seqs": 1})[0]

    assert logits[list(LOGITS)] == pytest.approx(list(LOGITS.values()), abs=0.15)
    assert np.argmax(logits) == 7042


def test_the_score_is_the_references_and_a_wrong_rotation_is_not(smollm2: Path, reference: Reference) -> None:
    tokenizer = Tokenizer.load(smollm2)
    ids = tokenizer.encode(PARAGRAPH)
    with load(smollm2, capacity=len(ids)) as executable:
        result = score(executable, tokenizer.settings, ids)

    assert len(ids) >= 80
    assert result.nll == pytest.approx(reference.nll(ids), abs=0.02)
    # The other pairing of the same rows still continues the prompt with " Paris.": only the likelihood shows it.
    assert replace(reference, pairwise=False).nll(ids) > result.nll + 0.2


def test_chat_uses_the_models_own_template(smollm2: Path) -> None:
    tokenizer = Tokenizer.load(smollm2)
    messages: list[Message] = [{"role": "user", "content": "What is gravity?"}]

    assert render(tokenizer, messages) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhat is gravity?<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = chat_prompt(tokenizer, messages)
    assert (ids[0], ids.count(1), ids.count(2)) == (1, 3, 2)
    with load(smollm2) as executable:
        generation = Generator(executable, tokenizer).generate(ids, max_tokens=40)
        list(generation)

    assert "gravity" in generation.text.lower()
    assert "<|im_end|>" not in generation.text
