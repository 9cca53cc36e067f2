"""Batches on a GPU, whose steps are launched ahead and padded: each prompt gives what it gives alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kern.contracts.text import PAGE
from kern.engine import Generator
from kern.engine.choices import UnusableLogits
from kern.runtime.loading import load
from kern.text import Tokenizer
from support.chain import write_chain
from support.greedy import assert_greedy, assert_same
from support.tiny import prompt, tiny_reference

pytestmark = pytest.mark.gpu

LENGTHS = (1, 2, 15, 16, 17, 48, 64, 65, 3, 120, 33, 300, 5, 64, 700, 31)
COUNT = 40
CAPACITY = 768
BROKEN = 20


@pytest.mark.parametrize(("pages", "options"), [(200, {}), (60, {}), (60, {"eager": True, "chunk": 50})])
@pytest.mark.parametrize("sequences", [3, 16])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_each_prompt_of_a_batch_gives_what_it_gives_alone(
    tiny_folder: Callable[..., Path], family: str, sequences: int, options: dict[str, Any], pages: int
) -> None:
    folder = tiny_folder(family, sequences)
    prompts = [prompt(length, seed=length) for length in LENGTHS]
    with load(folder, capacity=CAPACITY, pool_tokens=pages * PAGE) as executable:
        generator = Generator(executable, Tokenizer.load(folder), **options)
        batch = generator.generate(prompts, max_tokens=COUNT, ignore_stop=True)
        order = [index for index, _ in batch]
        alone = []
        for ids in prompts:
            alone.append(generator.generate(ids, max_tokens=COUNT, ignore_stop=True))
            list(alone[-1])

    assert sorted(order) == sorted(list(range(len(LENGTHS))) * COUNT)
    for ids, found, usual in zip(prompts, batch.generations, alone, strict=True):
        assert_greedy(tiny_reference(folder), ids, found.output_ids)
        assert_same(tiny_reference(folder), ids, usual.output_ids, found.output_ids)


def test_a_prompt_without_a_token_ends_alone(architecture: str, tmp_path: Path) -> None:
    folder = write_chain(tmp_path / "broken", broken=BROKEN, target=architecture, sequences=4)
    with load(folder, capacity=64, pool_tokens=8 * PAGE) as executable:
        prompts = [[2], [BROKEN - 2], [1, 7], [BROKEN], [BROKEN + 1]]
        batch = Generator(executable, Tokenizer.load(folder)).generate(prompts, max_tokens=12, ignore_stop=True)
        with pytest.raises(UnusableLogits, match="prompts that ended in an error: 1, 3"):
            list(batch)

    expected = [range(3, 15), [BROKEN - 1, BROKEN], range(8, 20), [], range(BROKEN + 2, BROKEN + 14)]
    assert [each.output_ids for each in batch.generations] == list(map(list, expected))
