"""Changes of bytes that know nothing of the format: flipped, inserted, deleted, spliced, repeated, cut off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

LIMITS = (
    *(0, 1, 2, 7, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**32),
    *(2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1),
)
"""Integers at which a reader's arithmetic or its bounds may fail."""
MOST_BYTES = 2**18
"""Inputs do not grow beyond this: a finding should be a small file."""


def change_bytes(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """The data with one change."""
    if not data:
        return random.randbytes(random.randrange(1, 16))
    return random.choice(_CHANGES)(random, data, others)[:MOST_BYTES]


def span(random: Random, length: int) -> tuple[int, int]:
    """A range within `length`, short ones more often."""
    start = random.randrange(length)
    return start, min(length, start + random.choice((1, 1, 2, 4, 8, random.randrange(1, 65), length)))


def _flip(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    changed = bytearray(data)
    changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwrite(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = span(random, len(data))
    return data[:start] + random.randbytes(min(end - start, 16)) + data[min(end, start + 16) :]


def _integer(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A little-endian integer set to a limit, or moved a little."""
    size = random.choice((1, 2, 4, 8))
    start = random.randrange(len(data))
    found = int.from_bytes(data[start : start + size], "little")
    value = random.choice((random.choice(LIMITS), found + random.choice((-8, -1, 1, 8, 64)), found * 2, found << 8))
    return data[:start] + (value % 256**size).to_bytes(size, "little") + data[start + size :]


def _insert(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start = random.randrange(len(data) + 1)
    size = random.choice((1, 2, 4, 8, random.randrange(1, 300)))
    return data[:start] + random.choice((random.randbytes(size), bytes(size), b"\xff" * size)) + data[start:]


def _delete(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = span(random, len(data))
    return data[:start] + data[end:]


def _repeat(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = span(random, len(data))
    times = random.choice((1, 1, 2, 10, 1000))
    return data[:end] + (data[start:end] * times)[:MOST_BYTES] + data[end:]


def _move(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = span(random, len(data))
    rest = data[:start] + data[end:]
    place = random.randrange(len(rest) + 1)
    return rest[:place] + data[start:end] + rest[place:]


def _splice(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = random.choice(others)
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def _cut(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    return data[: random.choice((random.randrange(len(data)), len(data) - 1))]


def _clear(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    start, end = span(random, len(data))
    return data[:start] + random.choice((b"\0", b"\xff")) * (end - start) + data[end:]


_CHANGES: tuple[Callable[[Random, bytes, Sequence[bytes]], bytes], ...] = (
    *(_flip, _flip, _overwrite, _integer, _integer, _insert),
    *(_delete, _repeat, _move, _splice, _cut, _clear),
)
