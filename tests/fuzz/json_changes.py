"""Changes of JSON values at random places in them, and their texts with what Python's own writer never makes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from fuzz.byte_changes import LIMITS, MOST_BYTES, change_bytes

Path = tuple[str | int, ...]

_RAW = "\ue000raw "
"""Begins a string in place of which other text is written: a repeated key, or brackets that nest deep."""
_STRINGS = (
    *("", " ", "a", "\0", "\x1b[31m", "\ud800", "\udc00x", "\ufeff", "é€🙂", "../..", "/", "~0", "null", "0", "-1"),
    *("x" * 300, "y" * 70_000, "\\", '"', "\n", "%s{}", "a\u0301", "\u202e", "1" * 400),
)
_SCALARS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.0, -0.0, 0.5, 4.0, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf),
    *(10**30, -(10**30), 10**400, [], {}, [[]], [None], {"": None}),
    *LIMITS,
    *(-limit for limit in LIMITS),
)
_DEPTHS = (3, 30, 62, 70, 300, 5000, 50_000)
_COUNTS = (2, 3, 20, 300, 3000)


def change_json(random: Random, value: Any, others: Sequence[Any], fragments: Sequence[Any] = ()) -> Any:
    """The value with one change; what was not changed is shared. `fragments` are values worth putting anywhere."""
    path = place(random, value)
    here = at(value, path)
    source = random.choice(others) if others and random.random() < 0.3 else value
    kind = random.randrange(20)
    if kind < 5 and path:
        return _changed(value, path[:-1], lambda container: _member(random, container, path[-1]))
    if kind < 10:
        return _changed(value, path, lambda _: _tweaked(random, here))
    if kind < 15:
        return _changed(value, path, lambda _: _alike(random, source, path, here))
    if kind < 17:
        return _changed(value, path, lambda _: at(source, place(random, source)))
    if kind < 18 and fragments:
        fragment = random.choice(fragments)
        joined = isinstance(fragment, dict) and isinstance(here, dict) and random.random() < 0.7
        return _changed(value, path, lambda _: here | fragment if joined else fragment)
    if kind < 19:
        return _changed(value, path, lambda _: random.choice((random.choice(_SCALARS), random.choice(_STRINGS))))
    return _changed(value, path, lambda _: _nested(random, here))


def _alike(random: Random, source: Any, path: Path, value: Any) -> Any:
    """Another value of the same type, under the same key if one is found."""
    found = value
    for _ in range(12):
        other = place(random, source)
        candidate = at(source, other)
        if type(candidate) is type(value):
            found = candidate
            if other[-1:] == path[-1:] and candidate != value:
                break
    return found


def place(random: Random, value: Any) -> Path:
    """A path into the value: a walk down that ends at a leaf, or sooner."""
    path: Path = ()
    while isinstance(value, dict | list) and value and random.random() > 0.12:
        key = random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
        path, value = (*path, key), value[key]
    return path


def at(value: Any, path: Path) -> Any:
    """The value at a path."""
    for key in path:
        value = value[key]
    return value


def _changed(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(value)
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _changed(value[path[0]], path[1:], change)
    return copy


def _member(random: Random, container: Any, key: str | int) -> Any:
    """A member of an object or a list left out, repeated, renamed, or many of it."""
    if isinstance(container, list):
        assert isinstance(key, int)
        times = _fitting(random.choice((0, 0, 2, 2, *_COUNTS)), container[key])
        if random.random() < 0.2:
            return random.sample(container, len(container)) if len(container) < 100 else container[::-1]
        return [*container[:key], *[container[key]] * times, *container[key + 1 :]]
    assert isinstance(key, str)
    kept = {name: value for name, value in container.items() if name != key}
    choice = random.randrange(6)
    if choice < 2:
        return kept
    if choice < 4:
        names = (*container, key + "x", key[:-1], key.upper(), random.choice(_STRINGS))
        return kept | {random.choice(names): container[key]}
    if choice < 5:
        return container | {f"{_RAW}key {key}": random.choice((container[key], None, *container.values()))}
    times = _fitting(random.choice(_COUNTS), container[key])
    return container | {f"{key}{number}": container[key] for number in range(times)}


def _fitting(times: int, value: Any) -> int:
    """How often a value may be repeated for the whole to stay an input."""
    return min(times, 2 + MOST_BYTES // len(json.dumps(value)))


def _tweaked(random: Random, value: Any) -> Any:
    """A scalar moved a little or to its limits; a container cut, emptied, or put into another."""
    if isinstance(value, bool) or value is None:
        return random.choice((True, False, None, 0, 1, "true"))
    if isinstance(value, int):
        return random.choice((value + 1, value - 1, -value, value * 2, value // 2, random.choice(LIMITS), str(value)))
    if isinstance(value, float):
        return random.choice((-value, value * 1e300, math.nan, int(value) if math.isfinite(value) else 0, 0.0))
    if isinstance(value, str):
        data = change_bytes(
            random, value.encode("utf-8", "surrogatepass")[:100_000], [value[::-1].encode("utf-8", "replace")]
        )
        return random.choice((data.decode("utf-8", "replace"), data.decode("latin-1"), value + value, value[:-1]))
    if isinstance(value, list):
        return random.choice(([], value[:1], value + value, [value], dict(_numbered(value))))
    return random.choice(({}, [value], list(value.values()), {"": value}))


def _numbered(values: Sequence[Any]) -> list[tuple[str, Any]]:
    """A list's members under their numbers."""
    return [(str(number), value) for number, value in enumerate(values[:50])]


def _nested(random: Random, value: Any) -> Any:
    """The value inside many lists or objects, or brackets alone."""
    depth = random.choice(_DEPTHS)
    if depth > 70:
        return f"{_RAW}deep {depth}"
    name = random.choice(("mul", "add", "a"))
    more = [2] if random.random() < 0.5 else []
    for _ in range(depth):
        value = {name: [value, *more]} if random.random() < 0.8 else [value]
    return value


def json_text(random: Random, value: Any) -> bytes:
    """The value's text, with the repeated keys and the deep nesting that it contains as marked strings."""
    compact = random.random() < 0.5
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":") if compact else None)
    marker = json.dumps(_RAW)[:-1]
    text = text.replace(marker + "key ", '"')
    for depth in _DEPTHS:
        brackets = random.choice(("[", '{"a":')), random.choice(("]", "}", ""))
        text = text.replace(f'{marker}deep {depth}"', brackets[0] * depth + brackets[1] * depth, 2)
    data = text.encode()
    return data if random.random() < 0.9 else change_bytes(random, data, [data])
