"""How fast rounds of speculation run, and how many draft tokens the target model accepts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kern.bench.steps import PROMPT, WARM_UP, idle_between, random_ids
from kern.contracts.text import round_calls
from kern.engine.decoding import steps_per_read
from kern.engine.generator import Generator
from kern.engine.sequence import PromptError
from kern.engine.speculation import BEGIN

MIN_ROUNDS: Final = 1 + WARM_UP
"""Rounds of the shortest measurement."""


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """`rounds` rounds: milliseconds per round, as median, tenth and ninetieth percentile.

    `acceptance` is the share of rounds that accepted the draft token at each position of the block, first to last.
    `idle_us_per_round` is the time in microseconds for which the device is idle between two rounds: the mean period of
    rounds that are launched ahead, less that of the same rounds in graphs of eight; the median of 5 differences. None
    on a device that is not asynchronous, and for fewer than eight rounds.
    """

    rounds: int
    tokens_per_round: float
    acceptance: tuple[float, ...]
    ms_per_round: float
    p10: float
    p90: float
    idle_us_per_round: float | None

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second at the median time."""
        return self.tokens_per_round / self.ms_per_round * 1e3


def benchmark_rounds(generator: Generator, rounds: int) -> RoundTimes:
    """Time `rounds` rounds after a prompt of 16 random ids; `generator` must speculate.

    Fewer rounds are timed if the capacity might not hold them, with all draft tokens accepted. Raises PromptError if it
    holds none.
    """
    rounds = min(rounds, room_for_rounds(generator))
    waits, accepted = _run(generator, rounds)
    calls = round_calls(generator.rows)
    idle = idle_between(generator, rounds, lambda count: _run(generator, count)[0], BEGIN, calls)
    low, middle, high = np.percentile(waits, [10, 50, 90])
    return RoundTimes(
        rounds=len(accepted),
        tokens_per_round=float(np.mean(accepted)) + 1,
        acceptance=acceptance(accepted, generator.rows - 1),
        ms_per_round=float(middle),
        p10=float(low),
        p90=float(high),
        idle_us_per_round=idle,
    )


def room_for_rounds(generator: Generator) -> int:
    """The maximum number of rounds that fit the generator's capacity. Raises PromptError if it holds none."""
    room = (generator.capacity - PROMPT + 1) // generator.rows - WARM_UP
    if room < 1:
        raise PromptError(
            f"the capacity is {generator.capacity}; timing one round takes {PROMPT - 1 + MIN_ROUNDS * generator.rows}",
            "load with a larger capacity",
        )
    return room


def acceptance(accepted: Sequence[int], drafts: int) -> tuple[float, ...]:
    """The share of rounds that accepted the draft token at each of `drafts` positions; `accepted` has their counts."""
    counts = np.asarray(accepted)
    return tuple(float(np.mean(counts > index)) for index in range(drafts))


def _run(generator: Generator, rounds: int) -> tuple[NDArray[np.float64], list[int]]:
    """Milliseconds of waiting per round, and what each accepts; rounds that are read together share their time."""
    per_read = min(steps_per_read(generator.executable), rounds)
    wanted = WARM_UP + rounds
    prompt = random_ids(generator, PROMPT)
    generation = generator.generate(prompt, max_tokens=wanted * generator.rows, ignore_stop=True)
    arrivals: list[float] = []
    for _ in generation:
        if len(arrivals) < len(generation.accepted):
            arrivals.append(time.perf_counter())
        if len(arrivals) == wanted:
            break
    readings = np.diff(arrivals[WARM_UP - 1 :: per_read]) / per_read * 1e3
    return np.repeat(readings, per_read), generation.accepted[WARM_UP:]
