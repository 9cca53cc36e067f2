"""Print a generation on stdout as it comes, and on stderr how long it took and why it ended."""

from __future__ import annotations

import sys

from kern.cli.terminal import printable, wrapped
from kern.engine.generation import Generation
from kern.engine.generator import Generator
from kern.manifest.counts import counted


def stream(generation: Generation, generator: Generator, *, quiet: bool) -> None:
    """Print text as it comes. Control characters are escaped on a terminal, and unchanged in a file or pipe."""
    tokenizer = generator.tokenizer
    terminal = sys.stdout.isatty()
    try:
        for token in generation:
            text = token.text if tokenizer.has_vocabulary else f"{token.id} "
            print(printable(text, keep="\n\t") if terminal else text, end="", flush=True)
    finally:
        print(flush=True)
        if not quiet:
            print("\n" + wrapped(_summary(generation, generator)), file=sys.stderr)


def _summary(generation: Generation, generator: Generator) -> str:
    """The times, and why it ended."""
    # The first round computes the state of the prompt's last token, other steps with the prompt.
    prefilled = len(generation.prompt_ids) - generation.reused - generator.spec
    words = []
    if generation.output_ids and prefilled:
        reused = f" after {generation.reused:,} reused" if generation.reused else ""
        words.append(f"prefill of {counted(prefilled, 'token')}{reused} in {generation.prefill_s * 1e3:.0f} ms")
    if generation.output_ids:
        ms = generation.ms_per_token
        speed = f", {ms:.2f} ms each: {1e3 / ms:.1f} tokens/s" if ms else ""
        words.append(counted(len(generation.output_ids), "token") + speed)
    if generation.accepted:
        each = f"{tokens_per_round(generation):.2f} tokens each"
        words.append(f"{counted(len(generation.accepted), 'round')} of speculation, {each}")
    return "; ".join(words) + f" ({_end(generation, generator.capacity)})"


def tokens_per_round(generation: Generation) -> float:
    """The mean number of tokens per round, with those of the last round past the end of the text."""
    return 1 + sum(generation.accepted) / len(generation.accepted)


def _end(generation: Generation, capacity: int) -> str:
    match generation.stop:
        case "stop_token":
            return "ended by a stop token"
        case "stop_text":
            return "ended by a stop string"
        case "length" if generation.capacity_full:
            return f"ended: the capacity of {counted(capacity, 'token')} is full"
        case "length":
            return f"ended: --max-tokens {len(generation.output_ids)} reached"
        case _:
            return "interrupted"
