"""Launching ahead of reads, on a device whose reads complete late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kern.contracts.text import READ_EVERY
from kern.engine import Generator
from kern.engine.decoding import MAX_READS_IN_FLIGHT
from kern.runtime.loading import load
from kern.text import Tokenizer
from support.host_driven import HostDriven
from support.late import Slow
from support.tiny import prompt

PROMPT = prompt(20)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("count", [1, 2, MAX_READS_IN_FLIGHT, MAX_READS_IN_FLIGHT + 1, 80])
def test_a_late_device_runs_ahead_within_bounds_and_gives_the_same_tokens(
    tiny: Path, count: int, asynchronous: bool
) -> None:
    readings = 1 + -(-(count - 1) // READ_EVERY) if asynchronous else count  # the first token comes with the prompt
    tokenizer = Tokenizer.load(tiny)
    with load(tiny, capacity=len(PROMPT) + count - 1) as executable:
        usual = HostDriven(executable, tokenizer).generate(PROMPT, max_tokens=1000)
        list(usual)
        slow = Slow(executable, asynchronous=asynchronous)
        late = Generator(slow, tokenizer).generate(PROMPT, max_tokens=1000)  # type: ignore[arg-type]
        list(late)

        assert late.output_ids == usual.output_ids
        assert len(late.output_ids) == count
        assert slow.most_under_way == min(MAX_READS_IN_FLIGHT, readings)
        assert slow.under_way == 0
        assert slow.reads == readings
        assert executable.read("slot_position")[0] == len(PROMPT) - 1 + count


def test_wasted_steps_do_not_change_the_next_text(tiny: Path) -> None:
    tokenizer = Tokenizer.load(tiny)
    with load(tiny, capacity=64) as executable:
        slow: Any = Slow(executable)
        generator = Generator(slow, tokenizer)
        whole = [token.id for token in generator.generate(PROMPT, max_tokens=20)]
        next(generator.generate(PROMPT, max_tokens=20))

        assert slow.under_way > 0
        assert [token.id for token in generator.generate(PROMPT, max_tokens=20)] == whole
