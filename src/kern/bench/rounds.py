"""How fast rounds of speculation run, and how much of what is drafted the target agrees with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kern.bench.steps import PROMPT, WARM_UP, idle_between, random_ids
from kern.contracts.text import round_calls
from kern.engine.decoding import stride
from kern.engine.generator import Generator
from kern.engine.sequence import PromptError
from kern.engine.speculation import BEGIN

LEAST: Final = 1 + WARM_UP
"""Rounds that the shortest measurement runs."""


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """What `rounds` rounds did: milliseconds of each, median, tenth and ninetieth percentile.

    `acceptance` is the share of rounds that accepted the draft at each place of the block, first to last.
    `idle_us_per_round` is the time that the device is idle between two rounds in microseconds: the mean period of
    rounds that are launched ahead, less that of the same rounds in graphs that hold eight each, the median of 5
    differences. None where rounds wait for one another, and for fewer than eight.
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
        """What rounds of the median time give."""
        return self.tokens_per_round / self.ms_per_round * 1e3


def benchmark_rounds(generator: Generator, rounds: int) -> RoundTimes:
    """Time `rounds` rounds after a prompt of 16 random ids; `generator` speculates.

    Rounds that the capacity might not hold, were all drafts accepted, are left out. Raises PromptError where it
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
    """The most rounds that can be timed in the generator's capacity. Raises PromptError where it holds none."""
    room = (generator.capacity - PROMPT + 1) // generator.rows - WARM_UP
    if room < 1:
        raise PromptError(
            f"the capacity is {generator.capacity}, timing one round takes {PROMPT - 1 + LEAST * generator.rows}",
            "load with a larger capacity",
        )
    return room


def acceptance(accepted: Sequence[int], drafts: int) -> tuple[float, ...]:
    """The share of rounds that accepted the draft at each of `drafts` places, given how many each accepted."""
    counts = np.asarray(accepted)
    return tuple(float(np.mean(counts > place)) for place in range(drafts))


def _run(generator: Generator, rounds: int) -> tuple[NDArray[np.float64], list[int]]:
    """The milliseconds that each round is waited for, and what it accepts; those read together share their time."""
    apart = min(stride(generator.executable), rounds)
    wanted = WARM_UP + rounds
    prompt = random_ids(generator, PROMPT)
    generation = generator.generate(prompt, max_tokens=wanted * generator.rows, ignore_stop=True)
    arrivals: list[float] = []
    for _ in generation:
        if len(arrivals) < len(generation.accepted):
            arrivals.append(time.perf_counter())
        if len(arrivals) == wanted:
            break
    readings = np.diff(arrivals[WARM_UP - 1 :: apart]) / apart * 1e3
    return np.repeat(readings, apart), generation.accepted[WARM_UP:]
