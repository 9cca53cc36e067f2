"""How long a step of many sequences takes: its graph alone, and as the caller of a batch sees it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kern.bench.steps import WARM_UP
from kern.contracts.text import PAGE, READ_EVERY
from kern.engine.batch import Batch
from kern.engine.decoding import MAX_READS_IN_FLIGHT, steps_per_read
from kern.engine.generation import Generation
from kern.engine.generator import Generator
from kern.engine.schedule import Member, Schedule, pages_of
from kern.engine.sequence import PromptError
from kern.manifest.counts import counted

GROUPS: Final = 16
"""Timings of the graph alone; each is of a share of the steps, launched back to back."""
_AHEAD: Final = MAX_READS_IN_FLIGHT * READ_EVERY
"""Steps that a batch may have launched when the last one that is timed arrives."""


@dataclass(frozen=True, slots=True)
class Milliseconds:
    """Milliseconds per step: median, tenth and ninetieth percentile."""

    median: float
    p10: float
    p90: float


@dataclass(frozen=True, slots=True)
class StepTimes:
    """A step of `sequences`: its graph alone, launched back to back, and as the caller of a batch sees it.

    `bytes_per_step` is what it must read, by the provider's count, and `bandwidth_share` the rate at which the graph
    alone reads it, divided by the device's read rate.
    """

    sequences: int
    graph: Milliseconds
    caller: Milliseconds
    tokens_per_second: float
    bytes_per_step: int
    bandwidth_share: float


@dataclass(frozen=True, slots=True)
class Window:
    """The steps that are timed: `steps` of them, with contexts around `context`."""

    context: int
    steps: int

    @property
    def prompt(self) -> int:
        """Tokens of the prompt; the first step is that of its last token."""
        return self.context - self.steps // 2 - WARM_UP

    @property
    def tokens(self) -> int:
        """Tokens whose state each sequence needs room for."""
        return self.prompt + WARM_UP + self.steps + _AHEAD


def window(context: int, steps: int) -> Window:
    """As many of `steps` as fit around `context`. Raises PromptError if the context is too short."""
    most = 2 * (context - WARM_UP - 1)
    if most < 1:
        raise PromptError(
            f"the context is {counted(context, 'token')}", f"give at least {WARM_UP + 2}, which includes the warm-up"
        )
    return Window(context, min(steps, most))


def benchmark_sequences(
    generator: Generator, counts: Sequence[int], timed: Window
) -> tuple[tuple[StepTimes, ...], float]:
    """Time steps of each number of sequences, on prompts of random ids; the times, and the device's read rate.

    The read rate, in bytes per second, is the higher of two measurements, before and after. Raises PromptError if the
    folder or what was loaded has no room for them.
    """
    for count in counts:
        _check(generator, count, timed)
    device = generator.executable.device
    before = device.read_bandwidth()
    measured = [(count, _graph(generator, count, timed), _caller(generator, count, timed)) for count in counts]
    bandwidth = max(before, device.read_bandwidth())
    return tuple(_times(generator, timed, *each, bandwidth) for each in measured), bandwidth


def _check(generator: Generator, count: int, timed: Window) -> None:
    calls = generator.calls
    if not 1 <= count <= calls.slots:
        raise PromptError(
            f"{counted(count, 'sequence')} at once; the folder runs 1 to {calls.slots}",
            "measure fewer, or build the folder with `kern build … --sequences`",
        )
    if timed.tokens > calls.capacity:
        raise PromptError(
            f"steps at a context of {timed.context} take {timed.tokens} tokens per sequence; "
            f"the capacity is {calls.capacity}",
            "give a smaller context or fewer steps, or load with a larger capacity",
        )
    if count * pages_of(timed.tokens) > calls.pages:
        raise PromptError(
            f"{counted(count, 'sequence')} of {timed.tokens} tokens need {count * pages_of(timed.tokens)} pages; "
            f"the pool has {calls.pages}",
            f"load with pool_tokens={count * pages_of(timed.tokens) * PAGE}",
        )


def _graph(generator: Generator, count: int, timed: Window) -> NDArray[np.float64]:
    """Milliseconds per step of each group of launches, which the host does not interrupt."""
    calls, schedule = generator.calls, generator.schedule()
    calls.begin()
    for ids in _prompts(generator, count, timed):
        schedule.add(Member(ids, timed.tokens))
    generator.prefill_all(schedule)
    schedule.ticks = 1
    for _ in range(WARM_UP):
        _launch(generator, schedule)
    groups = min(GROUPS, timed.steps)
    schedule.ticks = timed.steps // groups
    generator.executable.synchronize()
    return np.array([_launch(generator, schedule) for _ in range(groups)])


def _launch(generator: Generator, schedule: Schedule) -> float:
    """Run the next plan, and wait; milliseconds per step."""
    plan = schedule.plan()
    assert plan is not None
    start = time.perf_counter()
    generator.calls.launch(plan)
    generator.executable.synchronize()
    return (time.perf_counter() - start) / plan.ticks * 1e3


def _caller(generator: Generator, count: int, timed: Window) -> NDArray[np.float64]:
    """Milliseconds between the tokens of one of `count` sequences; steps that are read together share their time."""
    per_read = min(steps_per_read(generator.executable), timed.steps)
    generations = [
        Generation(generator.tokenizer, ids, timed.tokens, (), ()) for ids in _prompts(generator, count, timed)
    ]
    batch = Batch(generator, generations, together=True)
    arrivals: list[float] = []
    for index, _ in batch:
        if index == count - 1:
            arrivals.append(time.perf_counter())
        if len(arrivals) == WARM_UP + timed.steps:
            break
    batch.close()
    readings = np.diff(arrivals[WARM_UP - 1 :: per_read]) / per_read * 1e3
    return np.repeat(readings, per_read)


def _prompts(generator: Generator, count: int, timed: Window) -> list[list[int]]:
    """Random ids for each sequence, the same every time."""
    ids = np.random.default_rng(count).integers(0, generator.settings.vocabulary, (count, timed.prompt))
    prompts: list[list[int]] = ids.tolist()
    return prompts


def _times(
    generator: Generator,
    timed: Window,
    count: int,
    graph: NDArray[np.float64],
    caller: NDArray[np.float64],
    bandwidth: float,
) -> StepTimes:
    counted = generator.settings.decode_bytes
    size = counted.fixed + counted.per_context_token * timed.context * count
    alone, seen = _milliseconds(graph), _milliseconds(caller)
    return StepTimes(
        sequences=count,
        graph=alone,
        caller=seen,
        tokens_per_second=count / seen.median * 1e3,
        bytes_per_step=size,
        bandwidth_share=size / (alone.median * 1e-3) / bandwidth,
    )


def _milliseconds(readings: NDArray[np.float64]) -> Milliseconds:
    low, middle, high = np.percentile(readings, [10, 50, 90])
    return Milliseconds(float(middle), float(low), float(high))
