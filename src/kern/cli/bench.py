"""`kern bench`: measure, and print as text or JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kern.bench.profile import KernelTime, by_kernel, chrome_trace, profile_decode
from kern.bench.rounds import RoundTimes, benchmark_rounds, room_for_rounds
from kern.bench.steps import PROMPT, WARM_UP, Benchmark, benchmark
from kern.cli.loading import LoadOptions, loaded_model, report
from kern.cli.outputs import check_path, json_text, write_files
from kern.cli.processor import others_share, processor_times, warn_of_others
from kern.cli.terminal import printable, rate
from kern.engine.generator import Generator
from kern.manifest.counts import counted

LENGTHS = (16, 128, 512, 2048)
TRACE = "the trace"


def bench(
    path: Path,
    options: LoadOptions,
    *,
    steps: int,
    chunk: int | None,
    eager: bool,
    spec: bool,
    trace: Path | None,
    decode_only: bool,
    as_json: bool,
) -> None:
    """Load, measure, print. With `spec`, also time as many rounds as decode steps; with `decode_only`, skip prefill.

    With `trace`, profile a decode step and write its trace to that file.
    """
    if trace is not None:
        check_path(TRACE, trace)  # so that a wrong path is reported before the measurement
    with loaded_model(path, options, lambda _: None) as (model, _, seconds):
        generator = model.generator(chunk=chunk, eager=eager)
        speculating = model.generator(chunk=chunk, eager=eager, spec=True) if spec else None
        if speculating is not None:
            room_for_rounds(speculating)  # so that a capacity that is too small is reported before the measurement
        if not as_json:
            report(model.executable, seconds, options, (speculating or generator).graphs)
        before_measuring = processor_times()
        found = benchmark(generator, () if decode_only else LENGTHS, steps)
        rounds = None if speculating is None else benchmark_rounds(speculating, steps)
        others = others_share(before_measuring, processor_times())
        times = None if trace is None else _profiled(generator, found, trace)
    print(_as_json(found, rounds, times, others) if as_json else _text(found, rounds, times))
    warn_of_others(others)
    if trace is not None:
        print(f"the trace is in {printable(str(trace))}", file=sys.stderr)


def _profiled(generator: Generator, found: Benchmark, trace: Path) -> Sequence[KernelTime]:
    """Profile the middle one of the timed steps, write its trace, and sum its launches by kernel."""
    launches = profile_decode(generator, PROMPT + (WARM_UP + found.decode.steps) // 2)
    text = json_text(chrome_trace(launches, found.device)).encode()
    write_files(TRACE, {trace: lambda file: file.write(text)})
    return by_kernel(launches)


def _as_json(
    found: Benchmark, rounds: RoundTimes | None, times: Sequence[KernelTime] | None, others: float | None
) -> str:
    speculation = {} if rounds is None else {"spec": _rounds_json(rounds, found)}
    profile = {} if times is None else {"profile": [asdict(time) for time in times]}
    return json_text(
        {
            "device": found.device,
            "decode": asdict(found.decode),
            "prefill": [asdict(prefill) for prefill in found.prefill],
            "bytes_per_step": found.bytes_per_step,
            "read_bandwidth": found.bandwidth,
            "bandwidth_share": found.bandwidth_share,
            "idle_us_per_step": found.idle_us_per_step,
            "other_processes_share": others,
            **speculation,
            **profile,
        }
    )


def _rounds_json(rounds: RoundTimes, plain: Benchmark) -> dict[str, object]:
    return {
        **asdict(rounds),
        "tokens_per_second": rounds.tokens_per_second,
        "round_per_step": _round_per_step(rounds, plain),
        "speedup": _speedup(rounds, plain),
    }


def _round_per_step(rounds: RoundTimes, plain: Benchmark) -> float:
    """The median time of a round, divided by that of a decode step."""
    return rounds.ms_per_round / plain.decode.ms_per_token


def _speedup(rounds: RoundTimes, plain: Benchmark) -> float:
    """Tokens per second of rounds, divided by those of decode steps, from the medians."""
    return rounds.tokens_per_round / _round_per_step(rounds, plain)


def _text(found: Benchmark, rounds: RoundTimes | None, times: Sequence[KernelTime] | None) -> str:
    decode = found.decode
    lines = [
        f"decode   {decode.ms_per_token:9.3f} ms/token  ({1e3 / decode.ms_per_token:.1f} tokens/s; "
        f"p10 {decode.p10:.3f}, p90 {decode.p90:.3f}, {counted(decode.steps, 'step')})",
    ]
    lines += [
        f"prefill  {prefill.ms:9.3f} ms for {counted(prefill.tokens, 'token')}  "
        f"({prefill.tokens / prefill.ms * 1e3:.0f} tokens/s)"
        for prefill in found.prefill
    ]
    lines.append(
        f"memory   {found.bytes_per_step / 1e6:,.1f} MB per step: {found.bandwidth_share:.1%} of the "
        f"{rate(found.bandwidth)} that reading alone reaches"
    )
    if found.idle_us_per_step is not None:
        lines.append(f"idle     {_idle(found.idle_us_per_step):>9} µs between two decode steps")
    if rounds is not None:
        lines += _rounds_text(rounds, found)
    return "\n".join([*lines, *([] if times is None else _profile_text(times))])


def _rounds_text(rounds: RoundTimes, plain: Benchmark) -> list[str]:
    lines = [
        f"rounds   {rounds.ms_per_round:9.3f} ms/round  ({_round_per_step(rounds, plain):.2f} x a decode step; "
        f"p10 {rounds.p10:.3f}, p90 {rounds.p90:.3f}, {counted(rounds.rounds, 'round')})",
        f"tokens   {rounds.tokens_per_round:9.2f} per round  ({rounds.tokens_per_second:.1f} tokens/s, "
        f"{_speedup(rounds, plain):.2f} x plain decoding)",
        "accepted " + ", ".join(f"{share:.1%}" for share in rounds.acceptance) + " of the rounds, by position",
    ]
    if rounds.idle_us_per_round is not None:
        lines.append(f"idle     {_idle(rounds.idle_us_per_round):>9} µs between two rounds")
    return lines


def _idle(us: float) -> str:
    return f"{us:.1f}" if us >= 0.05 else "≈ 0"


def _profile_text(times: Sequence[KernelTime]) -> list[str]:
    title = "decode step, by kernel"
    width = max([len(title), *(len(time.kernel) for time in times)])
    return [
        "",
        f"{title:{width}}  launches         µs   share",
        *(f"{printable(time.kernel):{width}}  {time.launches:8}  {time.us:9.1f}  {time.share:6.1%}" for time in times),
    ]
