"""Numbers, counts and names in messages: `1,024`, `1 step`, `2 steps`, the beginning of a long name."""

from __future__ import annotations

from collections.abc import Sequence


def number(value: int) -> str:
    """`value` for people: `1,024`; one of too many digits as `about 2^300`."""
    return f"{value:,}" if value.bit_length() <= 128 else f"about {'-' if value < 0 else ''}2^{value.bit_length()}"


def counted(count: int, noun: str) -> str:
    """`count` and the noun, in the plural unless it is one: 2 steps, 2 patches, 2 entries."""
    if count == 1:
        return f"{number(count)} {noun}"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{number(count)} {noun[:-1]}ies"
    return f"{number(count)} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"


def excerpt(text: str, most: int = 100) -> str:
    """`text`, shortened to `most` characters: messages quote names, and a name in a file may take megabytes."""
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first names, each an excerpt, and how many more there are: `a, b, c and 2 more`."""
    more = f" and {number(len(names) - most)} more" if len(names) > most else ""
    return ", ".join(map(excerpt, names[:most])) + more
