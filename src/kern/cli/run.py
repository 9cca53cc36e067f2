"""`kern run` and `kern score`: generate text after a prompt, or score a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kern.cli.loading import LoadOptions, loaded_model, report
from kern.cli.outputs import json_text
from kern.cli.prompt import PromptSource, read_text
from kern.cli.streaming import stream, tokens_per_round
from kern.cli.terminal import bar
from kern.engine.generation import Generation
from kern.engine.generator import Generator
from kern.engine.scoring import check_text
from kern.engine.sequence import check_prompt
from kern.engine.stop_strings import check_stops
from kern.manifest.counts import counted
from kern.text.tokenizer import NoTokenizer, Tokenizer


def run(
    path: Path,
    source: PromptSource,
    options: LoadOptions,
    *,
    max_tokens: int,
    ignore_stop: bool,
    stop: Sequence[str],
    chunk: int | None,
    eager: bool,
    spec: bool,
    as_json: bool,
) -> None:
    """Generate after a prompt, and print the text as it comes, or one JSON object at the end."""

    def prepare(tokenizer: Tokenizer) -> list[int]:
        check_stops(stop, tokenizer)
        return check_prompt(source.resolve(tokenizer), tokenizer.settings, options.capacity)

    with loaded_model(path, options, prepare) as (model, prompt, seconds):
        generator = model.generator(chunk=chunk, eager=eager, spec=spec)
        generation = generator.generate(prompt, max_tokens=max_tokens, ignore_stop=ignore_stop, stop=stop)
        if as_json:
            for _ in generation:
                pass
            print(_as_json(generation, generator, seconds))
            return
        report(model.executable, seconds, options, generator.graphs)
        stream(generation, generator, quiet=options.quiet)


def _as_json(generation: Generation, generator: Generator, load_s: float) -> str:
    result: dict[str, object] = {
        "prompt_ids": list(generation.prompt_ids),
        "output_ids": generation.output_ids,
        "text": generation.text,
        "stop": generation.stop,
        "timing": {
            "load_s": load_s,
            "prefill_s": generation.prefill_s,
            "decode_s": generation.decode_s,
            "ms_per_token": generation.ms_per_token,
        },
    }
    if generator.spec:
        result["spec"] = {
            "rounds": len(generation.accepted),
            "tokens_per_round": tokens_per_round(generation) if generation.accepted else None,
            "accepted": generation.accepted,
        }
    return json_text(result)


def score_text(path: Path, text: str, options: LoadOptions, *, as_json: bool) -> None:
    """Score the text in a file, or on stdin for `-`."""

    def prepare(tokenizer: Tokenizer) -> list[int]:
        if not tokenizer.has_vocabulary:
            raise NoTokenizer(
                "this folder has no tokenizer", "score token ids from Python, with kern.engine.open_model"
            )
        return check_text(tokenizer.encode(read_text(text)), tokenizer.settings, options.capacity)

    with loaded_model(path, options, prepare) as (model, ids, seconds):
        if not as_json:
            report(model.executable, seconds, options)
        with bar("scoring") as progress:
            scored = model.score(ids, progress=progress)
    if as_json:
        print(json_text({"tokens": scored.tokens, "nll": scored.nll, "perplexity": scored.perplexity}))
    else:
        perplexity = "too large" if scored.perplexity is None else f"{scored.perplexity:.3f}"
        print(f"{counted(scored.tokens, 'token')}, {scored.nll:.4f} nats per token, perplexity {perplexity}")
