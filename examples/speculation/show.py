"""Generate with an artifact's draft model, accepted drafts in brackets, and compare with plain decoding.

python show.py ARTIFACT PROMPT
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import kern
from kern.engine import Generation, Generator
from kern.manifest.errors import KernError
from kern.text import Tokenizer

TOKENS = 96


def bracketed(generation: Generation) -> Iterator[str]:
    """The text, piece by piece: each round gives the accepted drafts, then the target's own token."""
    rounds = drafts = 0
    for token in generation:
        if rounds < len(generation.accepted):
            rounds, drafts = len(generation.accepted), generation.accepted[-1]
            yield "[" if drafts else ""
        drafts -= 1
        yield token.text + ("]" if drafts == 0 else "")
    yield "]" if drafts > 0 else ""


def compared(plain: list[int], speculative: list[int]) -> str:
    """Whether both are equal, or where they differ: at a near-tie the order of summation decides."""
    if plain == speculative:
        return "the same text as without the draft"
    index = next(index for index, pair in enumerate(zip(plain, speculative, strict=False)) if len({*pair}) > 1)
    return f"without the draft the text differs from token {index + 1} on"


def main() -> None:
    """Generate twice, and print the result."""
    if len(sys.argv) != 3:
        sys.exit("usage: python show.py ARTIFACT PROMPT")
    try:
        with kern.load(sys.argv[1]) as executable:
            tokenizer = Tokenizer.load(sys.argv[1])
            plain = Generator(executable, tokenizer).generate(sys.argv[2], max_tokens=TOKENS)
            for _ in plain:
                pass
            generation = Generator(executable, tokenizer, spec=True).generate(sys.argv[2], max_tokens=TOKENS)
            for piece in bracketed(generation):
                print(piece, end="", flush=True)
    except KernError as error:
        sys.exit(f"show.py: {error}")
    tokens, rounds = len(generation.output_ids), len(generation.accepted)
    print(f"\n\n{tokens} tokens in {rounds} rounds, {tokens / rounds:.2f} each; ", end="")
    print(compared(plain.output_ids, generation.output_ids))


if __name__ == "__main__":
    main()
