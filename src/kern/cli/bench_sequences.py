"""`kern bench --sequences`: time steps of many sequences, and print a table or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from kern.bench.sequences import StepTimes, Window, benchmark_sequences, window
from kern.cli.errors import UsageError
from kern.cli.loading import LoadOptions, loaded_model, report
from kern.cli.outputs import json_text
from kern.cli.processor import others_share, processor_times, warn_of_others
from kern.cli.terminal import rate
from kern.contracts.text import PAGE
from kern.engine.schedule import pages_of
from kern.manifest.counts import counted
from kern.text.tokenizer import Tokenizer


def bench_sequences(
    path: Path,
    options: LoadOptions,
    counts: Sequence[int],
    *,
    context: int,
    steps: int,
    chunk: int | None,
    eager: bool,
    as_json: bool,
) -> None:
    """Load with a pool for the largest of `counts`, measure, print. `options.capacity` is the most tokens of each."""
    timed = window(context, steps)
    needed = f"{counted(timed.steps, 'step')} at a context of {context} take {timed.tokens} tokens per sequence"
    if timed.tokens > options.capacity:
        raise UsageError(
            f"{needed}; the capacity is {options.capacity}",
            f"give --capacity {timed.tokens}, a smaller --context or fewer --steps",
        )
    pool = max(counts) * pages_of(timed.tokens) * PAGE
    options = replace(options, capacity=timed.tokens, pool_tokens=pool)

    def prepare(tokenizer: Tokenizer) -> None:
        if timed.tokens > tokenizer.settings.positions:
            raise UsageError(
                f"{needed}; the model has {tokenizer.settings.positions} positions",
                "give a smaller --context or fewer --steps",
            )

    with loaded_model(path, options, prepare) as (model, _, seconds):
        generator = model.generator(chunk=chunk, eager=eager)
        if not as_json:
            report(model.executable, seconds, options, generator.graphs)
        before = processor_times()
        found, bandwidth = benchmark_sequences(generator, counts, timed)
        others = others_share(before, processor_times())
        device = model.executable.device.description
    if as_json:
        print(
            json_text(
                {
                    "device": device,
                    **asdict(timed),
                    "sequences": [asdict(each) for each in found],
                    "read_bandwidth": bandwidth,
                    "other_processes_share": others,
                }
            )
        )
    else:
        print(_text(found, timed, bandwidth))
    warn_of_others(others)


def sequence_counts(text: str) -> tuple[int, ...]:
    """The numbers in `1,8,16`. Raises UsageError."""
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise UsageError(f"--sequences {text!r} is not a list of numbers of sequences", "write them as 1,8,16")
    return counts


def _text(found: Sequence[StepTimes], timed: Window, bandwidth: float) -> str:
    title = f"decode steps at {counted(timed.context, 'token')} of context, ms; {counted(timed.steps, 'step')} each"
    columns = "sequences    graph      p10      p90   caller      p10      p90   tokens/s         MB   share"
    rows = [
        f"{each.sequences:9}"
        + "".join(f"{ms:9.3f}" for times in (each.graph, each.caller) for ms in (times.median, times.p10, times.p90))
        + f"{each.tokens_per_second:11.1f}{each.bytes_per_step / 1e6:11,.1f}{each.bandwidth_share:8.1%}"
        for each in found
    ]
    note = (
        "graph: steps launched back to back; caller: as a batch returns them; share: of the "
        f"{rate(bandwidth)} that reading alone reaches, by the graph"
    )
    return "\n".join([title, columns, *rows, note])
