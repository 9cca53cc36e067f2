"""How fast a model runs: decode and prefill times, compared with the bytes that a decode step must read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kern.engine.decoding import steps_per_read
from kern.engine.generator import Generator
from kern.engine.runner import Runner
from kern.engine.sequence import PromptError, Sized

PROMPT: Final = 16
WARM_UP: Final = 16
REPEATS: Final = 5

GROUP: Final = 8
"""Decode steps per graph; WARM_UP is a multiple of it."""
MAX_GROUPS: Final = 16


@dataclass(frozen=True, slots=True)
class DecodeTimes:
    """Milliseconds per token over `steps` steps: median, tenth and ninetieth percentile."""

    ms_per_token: float
    p10: float
    p90: float
    steps: int


@dataclass(frozen=True, slots=True)
class PrefillTime:
    """Median milliseconds for a prompt of `tokens`."""

    tokens: int
    ms: float


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The measurements. `bandwidth` is the device's read rate in bytes per second, measured before and after decoding.

    `bytes_per_step` is what a decode step must read at the mean context of the run, by the provider's count.
    `idle_us_per_step` is the time in microseconds for which the device is idle between two steps: the period of steps
    that are launched ahead, less that of the same steps in graphs of eight; the median of 5 differences. Within the
    noise it may be negative. None on a device that is not asynchronous, for a manifest that does not feed itself, and
    for fewer than eight steps.
    """

    device: str
    decode: DecodeTimes
    prefill: tuple[PrefillTime, ...]
    bytes_per_step: int
    bandwidth: float
    idle_us_per_step: float | None

    @property
    def bandwidth_share(self) -> float:
        """The rate at which decoding reads its bytes, divided by the device's read rate."""
        return self.bytes_per_step / (self.decode.ms_per_token * 1e-3) / self.bandwidth


def benchmark(generator: Generator, lengths: Sequence[int], steps: int) -> Benchmark:
    """Time `steps` decode steps after a prompt of 16 random ids, and prompts of each of `lengths` tokens.

    The read rate is the higher of two measurements, before and after decoding, so that other load at one moment does
    not improve the share. Steps and lengths beyond the capacity are left out. Raises PromptError if the capacity is too
    small for any step.
    """
    device = generator.executable.device
    steps = min(steps, generator.capacity + 1 - PROMPT - WARM_UP)
    if steps < 1:
        raise PromptError(
            f"the capacity is {generator.capacity}; timing one step takes {PROMPT + WARM_UP}",
            "load with a larger capacity",
        )
    before = device.read_bandwidth()
    waits = _decode(generator, steps)
    idle = None
    if generator.calls.ahead:
        idle = idle_between(generator, steps, partial(_decode, generator), ("begin", 1), [("decode", 1)])
    bandwidth = max(before, device.read_bandwidth())
    counted = generator.settings.decode_bytes
    context = PROMPT + WARM_UP + len(waits) / 2
    prefill = tuple(_prefill(generator, n) for n in lengths if n <= generator.capacity)
    return Benchmark(
        device=device.description,
        decode=_times(waits),
        prefill=prefill,
        bytes_per_step=round(counted.fixed + counted.per_context_token * context),
        bandwidth=bandwidth,
        idle_us_per_step=idle,
    )


def random_ids(runner: Runner, count: int) -> list[int]:
    """A random prompt of `count` ids, the same every time."""
    return [int(id) for id in np.random.default_rng(count).integers(0, runner.settings.vocabulary, count)]


def _decode(generator: Generator, steps: int) -> NDArray[np.float64]:
    """Milliseconds of waiting per step; steps that are read together share their time."""
    per_read = min(steps_per_read(generator.executable), steps)
    generation = generator.generate(random_ids(generator, PROMPT), max_tokens=WARM_UP + steps, ignore_stop=True)
    arrivals = [time.perf_counter() for _ in generation]
    readings = np.diff(arrivals[WARM_UP - 1 :: per_read]) / per_read * 1e3
    return np.repeat(readings, per_read)


def _times(waits: NDArray[np.float64]) -> DecodeTimes:
    low, middle, high = np.percentile(waits, [10, 50, 90])
    return DecodeTimes(float(middle), float(low), float(high), len(waits))


def idle_between(
    runner: Runner,
    count: int,
    waits: Callable[[int], NDArray[np.float64]],
    begin: Sized,
    calls: Sequence[Sized],
) -> float | None:
    """Microseconds for which the device is idle between two runs of `calls` that are launched ahead.

    `waits` returns the milliseconds of waiting for each of up to `count` runs. The result is their mean, less the
    period of the same runs in graphs of GROUP, after `begin`: the median of REPEATS differences, measured in turns so
    that both see the same load. None if the device is not asynchronous, and for fewer than GROUP runs.
    """
    groups = min(count // GROUP, MAX_GROUPS)
    if not (runner.executable.device.asynchronous and groups):
        return None
    return median(
        float(np.mean(waits(groups * GROUP))) * 1e3 - _grouped_period(runner, begin, calls, groups)
        for _ in range(REPEATS)
    )


def _grouped_period(runner: Runner, begin: Sized, calls: Sequence[Sized], groups: int) -> float:
    """The period in microseconds of `calls` in graphs of GROUP, over `groups` graphs after a warm-up.

    They follow a prompt and `begin`, so that the contexts are those of decoding.
    """
    executable, sequence = runner.executable, runner.sequence
    *given, last = random_ids(runner, PROMPT)
    runner.prefill(given)
    sequence.write_inputs([last], PROMPT - 1)
    sequence.run(begin)
    graph = sequence.recorded(*[*calls] * GROUP)
    for _ in range(WARM_UP // GROUP):
        graph.launch()
    executable.synchronize()
    start = time.perf_counter()
    for _ in range(groups):
        graph.launch()
    executable.synchronize()
    period = (time.perf_counter() - start) / (groups * GROUP)
    graph.close()
    return period * 1e6


def _prefill(runner: Runner, tokens: int) -> PrefillTime:
    ids = random_ids(runner, tokens)
    times = []
    for _ in range(1 + REPEATS):
        start = time.perf_counter()
        runner.prefill(ids)
        times.append((time.perf_counter() - start) * 1e3)
    return PrefillTime(tokens, float(np.median(times[1:])))
