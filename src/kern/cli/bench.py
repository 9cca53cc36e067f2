"""`kern bench`: measure, and print as text or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kern.cli.loading import LoadOptions, loaded, report
from kern.cli.terminal import printable
from kern.cli.trace import check_place, write_trace
from kern.cli.units import rate
from kern.manifest.counts import counted
from kern.runtime.executable import Executable
from kern.text.benchmark import PROMPT, WARM_UP, Benchmark, benchmark
from kern.text.generator import Generator
from kern.text.profiling import KernelTime, by_kernel, chrome_trace, profile_decode
from kern.text.tokenizer import Tokenizer

LENGTHS = (16, 128, 512, 2048)


def bench(
    path: Path, options: LoadOptions, *, steps: int, chunk: int, eager: bool, trace: Path | None, as_json: bool
) -> None:
    """Load, measure, print; with `trace`, profile a decode step too, and write its trace there."""
    if trace is not None:
        check_place(trace)  # so that a wrong path is told before the measuring
    tokenizer = Tokenizer.load(path)
    with loaded(path, options.fitting(tokenizer.settings)) as (executable, seconds):
        generator = Generator(executable, tokenizer, chunk=chunk, eager=eager)
        if not as_json:
            report(executable, seconds, generator.graphs)
        found = benchmark(generator, LENGTHS, steps)
        times = None if trace is None else _profiled(executable, tokenizer, found, trace)
    print(_as_json(found, times) if as_json else _text(found, times))
    if trace is not None:
        print(f"the trace is in {printable(str(trace))}", file=sys.stderr)


def _profiled(executable: Executable, tokenizer: Tokenizer, found: Benchmark, trace: Path) -> Sequence[KernelTime]:
    """Profile the step in the middle of those that were timed, write its trace, and sum its launches by kernel."""
    launches = profile_decode(executable, tokenizer, PROMPT + (WARM_UP + found.decode.steps) // 2)
    write_trace(trace, chrome_trace(launches, found.device))
    return by_kernel(launches)


def _as_json(found: Benchmark, times: Sequence[KernelTime] | None) -> str:
    profile = {} if times is None else {"profile": [asdict(time) for time in times]}
    return json.dumps(
        {
            "device": found.device,
            "decode": asdict(found.decode),
            "prefill": [asdict(prefill) for prefill in found.prefill],
            "bytes_per_step": found.bytes_per_step,
            "read_bandwidth": found.bandwidth,
            "bandwidth_share": found.bandwidth_share,
            "idle_us_per_step": found.idle_us_per_step,
            **profile,
        }
    )


def _text(found: Benchmark, times: Sequence[KernelTime] | None) -> str:
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
        f"memory   {found.bytes_per_step / 1e6:,.1f} MB a step: {found.bandwidth_share:.1%} of the "
        f"{rate(found.bandwidth)} that reading alone reaches"
    )
    if found.idle_us_per_step is not None:
        idle = f"{found.idle_us_per_step:.1f}" if found.idle_us_per_step >= 0.05 else "≈ 0"
        lines.append(f"idle     {idle:>9} µs between two decode steps")
    return "\n".join([*lines, *([] if times is None else _profile_text(times))])


def _profile_text(times: Sequence[KernelTime]) -> list[str]:
    title = "a decode step, by kernel"
    width = max([len(title), *(len(time.kernel) for time in times)])
    return [
        "",
        f"{title:{width}}  launches         µs   share",
        *(f"{printable(time.kernel):{width}}  {time.launches:8}  {time.us:9.1f}  {time.share:6.1%}" for time in times),
    ]
