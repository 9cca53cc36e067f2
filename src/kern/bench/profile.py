"""Where the time of a decode step goes: each launch timed alone, summed by kernel, and as a trace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from kern.engine.runner import Runner
from kern.engine.sequence import PagedSequence, check_room
from kern.runtime.stepping import LaunchTime

REPEATS: Final = 8


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The launches of one kernel entry in a step: their number, microseconds, and share of the time of all launches."""

    kernel: str
    launches: int
    us: float
    share: float


def profile_decode(runner: Runner, context: int) -> tuple[LaunchTime, ...]:
    """The time of each launch of a decode step at position `context`, the median of 8 steps.

    The state is used as it is, zeros or a text's, which is lost. Each launch is timed alone (see Executable.profile).
    Raises PromptError if the capacity is below `context` + 1.
    """
    check_room(f"the profiled step is at position {context}", context + 1, runner.capacity, runner.settings)
    runner.sequence.begin()
    _, *runs = [_step(runner.sequence, context) for _ in range(1 + REPEATS)]
    return tuple(
        LaunchTime(launch.label, launch.kernel, launch.step, median(each.seconds for each in same))
        for launch, *same in zip(runs[0], *runs, strict=True)
    )


def _step(sequence: PagedSequence, position: int) -> tuple[LaunchTime, ...]:
    sequence.write_inputs([0], position)
    if sequence.calls.ahead:
        sequence.run(("begin", 1))
    return sequence.calls.profile(sequence.calls.step_of(1))


def by_kernel(launches: Sequence[LaunchTime]) -> tuple[KernelTime, ...]:
    """The time of each kernel entry, the longest first."""
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for launch in launches:
        seconds[launch.kernel].append(launch.seconds)
    total = sum(launch.seconds for launch in launches) or 1.0
    times = [KernelTime(kernel, len(each), sum(each) * 1e6, sum(each) / total) for kernel, each in seconds.items()]
    return tuple(sorted(times, key=lambda time: -time.us))


def chrome_trace(launches: Sequence[LaunchTime], device: str) -> dict[str, Any]:
    """The launches in sequence, in the Trace Event Format that Perfetto and Chrome open; times in µs."""
    events: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": device}}]
    start = 0.0
    for launch in launches:
        events.append(
            {
                "name": launch.kernel,
                "ph": "X",
                "ts": start * 1e6,
                "dur": launch.seconds * 1e6,
                "pid": 0,
                "tid": 0,
                "args": {"launch": launch.label, "step": launch.step},
            }
        )
        start += launch.seconds
    return {"traceEvents": events, "displayTimeUnit": "ns"}
