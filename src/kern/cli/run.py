"""`kern run` and `kern score`: a prompt in, text or a likelihood out."""

from __future__ import annotations

import sys
from pathlib import Path

from kern.cli.json_text import json_text
from kern.cli.loading import LoadOptions, check_same, loaded, place, report
from kern.cli.progress import bar
from kern.cli.prompt import PromptSource, read_text
from kern.cli.terminal import printable
from kern.manifest.counts import counted
from kern.text.generator import Generation, Generator, check_prompt
from kern.text.scoring import check_text, score
from kern.text.speculation import Driver
from kern.text.tokenizer import NoTokenizer, Tokenizer


def run(
    path: Path,
    source: PromptSource,
    options: LoadOptions,
    *,
    max_tokens: int,
    ignore_stop: bool,
    chunk: int,
    eager: bool,
    spec: Driver | None,
    as_json: bool,
) -> None:
    """Generate after a prompt: streamed text, or one JSON object at the end."""
    before = place(path)
    tokenizer = Tokenizer.load(path)
    prompt = source.resolve(tokenizer)
    options = options.fitting(tokenizer.settings)
    check_prompt(prompt, tokenizer, options.capacity)
    with loaded(path, options) as (executable, seconds):
        check_same(path, before)
        generator = Generator(executable, tokenizer, chunk=chunk, eager=eager, spec=spec)
        generation = generator.generate(prompt, max_tokens=max_tokens, ignore_stop=ignore_stop)
        if as_json:
            for _ in generation:
                pass
            print(_as_json(generation, generator, seconds))
            return
        report(executable, seconds, generator.graphs)
        _stream(generation, generator)


def _stream(generation: Generation, generator: Generator) -> None:
    """Text as it comes; what a terminal would obey is made visible on one, and left alone in a file or pipe."""
    tokenizer = generator.tokenizer
    terminal = sys.stdout.isatty()
    try:
        for token in generation:
            text = token.text if tokenizer.has_vocabulary else f"{token.id} "
            print(printable(text, keep="\n\t") if terminal else text, end="", flush=True)
    finally:
        print(flush=True)
        print(_summary(generation, generator.capacity), file=sys.stderr)


def _summary(generation: Generation, capacity: int) -> str:
    """The times, and why it ended. The prompt's last token is the input of the first decode step, not of prefill."""
    prefilled, count = len(generation.prompt_ids) - 1, len(generation.output_ids)
    words = []
    if prefilled:
        words.append(f"prefill of {counted(prefilled, 'token')} in {generation.prefill_s * 1e3:.0f} ms")
    if count and generation.decode_s:
        each = f"{generation.decode_s / count * 1e3:.2f} ms each: {count / generation.decode_s:.1f} tokens/s"
        words.append(f"{counted(count, 'token')}, {each}")
    if generation.accepted:
        each = f"{_tokens_per_round(generation):.2f} tokens each"
        words.append(f"{counted(len(generation.accepted), 'round')} of speculation, {each}")
    return "\n" + "; ".join(words) + _end(generation, capacity)


def _tokens_per_round(generation: Generation) -> float:
    """What the rounds gave on average; what the last one gave past the end of the text counts as well."""
    return 1 + sum(generation.accepted) / len(generation.accepted)


def _end(generation: Generation, capacity: int) -> str:
    if generation.capacity_full:
        return f" (ended: the capacity of {counted(capacity, 'token')} is full)"
    return {"stop_token": " (ended by a stop token)", "length": "", None: " (interrupted)"}[generation.stop]


def _as_json(generation: Generation, generator: Generator, load_s: float) -> str:
    count = len(generation.output_ids)
    result: dict[str, object] = {
        "prompt_ids": list(generation.prompt_ids),
        "output_ids": generation.output_ids,
        "text": generation.text,
        "stop": generation.stop,
        "timing": {
            "load_s": load_s,
            "prefill_s": generation.prefill_s,
            "decode_s": generation.decode_s,
            "ms_per_token": generation.decode_s / count * 1e3 if count else None,
        },
    }
    if generator.spec is not None:
        result["spec"] = {
            "rounds": len(generation.accepted),
            "tokens_per_round": _tokens_per_round(generation) if generation.accepted else None,
            "accepted": generation.accepted,
        }
    return json_text(result)


def score_text(path: Path, text: str, options: LoadOptions, *, as_json: bool) -> None:
    """Score the text in a file, or on stdin for `-`."""
    before = place(path)
    tokenizer = Tokenizer.load(path)
    if not tokenizer.has_vocabulary:
        raise NoTokenizer("this folder has no tokenizer", "score token ids from Python, with kern.text.score")
    ids = tokenizer.encode(read_text(text))
    options = options.fitting(tokenizer.settings)
    check_text(ids, tokenizer, options.capacity)
    with loaded(path, options) as (executable, seconds):
        check_same(path, before)
        if not as_json:
            report(executable, seconds)
        with bar("scoring") as progress:
            found = score(executable, tokenizer, ids, progress=progress)
    if as_json:
        print(json_text({"tokens": found.tokens, "nll": found.nll, "perplexity": found.perplexity}))
    else:
        perplexity = "too large for a number" if found.perplexity is None else f"{found.perplexity:.3f}"
        print(f"{counted(found.tokens, 'token')}, {found.nll:.4f} nats per token, perplexity {perplexity}")
