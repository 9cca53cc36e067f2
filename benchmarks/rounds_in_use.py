"""Decoding after prompts, plain and with rounds of speculation, in turns: tokens per second and per round, as JSON.

    python benchmarks/rounds_in_use.py ARTIFACT PROMPTS [--tokens 256]

ARTIFACT was built with a draft. PROMPTS is a JSON list of objects whose `prompt` are token ids, such as
tests/samples/smollm2-rounds.json; the results are of `PROMPTS` in tests/support/held_out.py. Each prompt is continued
both ways one after another, so that a change of clocks affects both; the time is that of decoding, without the
prompt's prefill. The first prompt is run once before, and not counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from about import about

import kern
from kern.engine import Generation, Generator
from kern.text import Tokenizer

WAYS: Final[Mapping[str, bool]] = {"plain": False, "device": True}


@dataclass
class Taken:
    """The tokens of one way of decoding, and the seconds that it took."""

    tokens: int = 0
    rounds: int = 0
    seconds: float = 0.0
    timed_tokens: int = 0

    def add(self, generation: Generation) -> None:
        """Count a generation that has ended."""
        self.tokens += len(generation.output_ids)
        self.rounds += len(generation.accepted)
        self.seconds += generation.decode_s
        self.timed_tokens += generation.timed_tokens

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.timed_tokens / self.seconds

    def compared_with(self, plain: Taken) -> Mapping[str, float]:
        """Tokens per second, and where there were rounds, tokens per round and the speedup over `plain`."""
        if not self.rounds:
            return {"tokens": self.tokens, "tokens_per_s": self.rate}
        of_rounds = {"tokens_per_round": self.tokens / self.rounds, "by_plain": self.rate / plain.rate}
        return {"tokens": self.tokens, "tokens_per_s": self.rate, **of_rounds}


def measure(artifact: Path, prompts: Sequence[Sequence[int]], tokens: int) -> Mapping[str, Taken]:
    """Continue every prompt in every way, with one artifact per way, since each keeps its own states."""
    tokenizer, taken = Tokenizer.load(artifact), {way: Taken() for way in WAYS}
    capacity = max(map(len, prompts)) + tokens
    with ExitStack() as stack:
        loaded = {way: stack.enter_context(kern.load(artifact, capacity=capacity)) for way in WAYS}
        generators = {way: Generator(loaded[way], tokenizer, spec=spec) for way, spec in WAYS.items()}
        for index, prompt in enumerate([prompts[0], *prompts]):
            for way, generator in generators.items():
                generation = generator.generate(prompt, max_tokens=tokens)
                for _ in generation:
                    pass
                if index > 0:
                    taken[way].add(generation)
    return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--tokens", type=int, default=256)
    options = parser.parse_args()
    prompts = [each["prompt"] for each in json.loads(options.prompts.read_text())]
    taken = measure(options.artifact, prompts, options.tokens)
    ways = {way: each.compared_with(taken["plain"]) for way, each in taken.items()}
    print(json.dumps({**about(["python", *sys.argv]), "prompts": len(prompts), **ways}, indent=1))


if __name__ == "__main__":
    main()
