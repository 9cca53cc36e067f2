"""Numbers and counts for people: `1,024`, `1 step`, `2 steps`."""

from __future__ import annotations


def number(value: int) -> str:
    """`value` for people, who do not read more than some digits: `1,024`, `about 2^300`."""
    return f"{value:,}" if value.bit_length() <= 128 else f"about {'-' if value < 0 else ''}2^{value.bit_length()}"


def counted(count: int, noun: str) -> str:
    """`count` and the noun, in the plural unless there is one: an s, es after a hiss, ies for a consonant's y."""
    if count == 1:
        return f"{number(count)} {noun}"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{number(count)} {noun[:-1]}ies"
    return f"{number(count)} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"
