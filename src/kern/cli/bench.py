"""`kern bench`: measure, and print as text or JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from kern.cli.loading import LoadOptions, loaded, report
from kern.cli.units import rate
from kern.text.benchmark import Benchmark, benchmark
from kern.text.generator import Generator
from kern.text.tokenizer import Tokenizer

LENGTHS = (16, 128, 512, 2048)


def bench(path: Path, options: LoadOptions, *, steps: int, chunk: int, eager: bool, as_json: bool) -> None:
    """Load, measure, print."""
    tokenizer = Tokenizer.load(path)
    with loaded(path, options.fitting(tokenizer.settings)) as (executable, seconds):
        generator = Generator(executable, tokenizer, chunk=chunk, eager=eager)
        if not as_json:
            report(executable, seconds, generator.graphs)
        found = benchmark(generator, LENGTHS, steps)
    print(_as_json(found) if as_json else _text(found))


def _as_json(found: Benchmark) -> str:
    return json.dumps(
        {
            "device": found.device,
            "decode": asdict(found.decode),
            "prefill": [asdict(prefill) for prefill in found.prefill],
            "bytes_per_step": found.bytes_per_step,
            "read_bandwidth": found.bandwidth,
            "bandwidth_share": found.bandwidth_share,
        }
    )


def _text(found: Benchmark) -> str:
    decode = found.decode
    lines = [
        f"decode   {decode.ms_per_token:9.3f} ms/token  ({1e3 / decode.ms_per_token:.1f} tokens/s; "
        f"p10 {decode.p10:.3f}, p90 {decode.p90:.3f}, {decode.steps} steps)",
    ]
    lines += [
        f"prefill  {prefill.ms:9.3f} ms for {prefill.tokens} tokens  ({prefill.tokens / prefill.ms * 1e3:.0f} tokens/s)"
        for prefill in found.prefill
    ]
    lines.append(
        f"memory   {found.bytes_per_step / 1e6:,.1f} MB a step: {found.bandwidth_share:.1%} of the "
        f"{rate(found.bandwidth)} that reading alone reaches"
    )
    return "\n".join(lines)
