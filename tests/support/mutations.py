"""Generated ways to break a manifest: each change at each place where it applies, as JSON values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from kern.manifest.diagnostics import Path

DTYPES = ("bf16", "f16", "f32", "fp8e4m3", "i32", "u32", "i64", "u8")
SCALARS = ("i32", "u32", "i64", "f32", "u8")
CLASSES = ("input", "output", "weight", "workspace", "carry")
SECTIONS = ("symbols", "states", "buffers", "kernels", "programs")


@dataclass(frozen=True)
class Mutation:
    """One changed manifest: what was done, where, the value there before, and how to get the whole after."""

    operation: str
    path: Path
    before: Any
    apply: Callable[[], Any]

    @property
    def category(self) -> tuple[str, str]:
        """The operation and the kind of place, names and indices left out."""
        return self.operation, kind_of(self.path)


def kind_of(path: Path) -> str:
    """A path with names as `*`, indices as `#`, scalars as `literal`: `programs/*/dispatches/#/args/#/literal`."""
    named = [i for i, token in enumerate(path) if (i == 1 and path[0] in SECTIONS) or (i and path[i - 1] == "scratch")]
    named += [3] if len(path) > 3 and path[0] == "programs" and path[2] == "symbols" else []
    kinds = ("#" if isinstance(t, int) else "*" if i in named else t for i, t in enumerate(path))
    return "/".join("literal" if kind in SCALARS else kind for kind in kinds)


def places(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value below `value`, with its path."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key), inner
        yield from places(inner, (*path, key))


def at(value: Any, path: Path) -> Any:
    """The value at `path`; None where there is none."""
    for token in path:
        try:
            value = value[token]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def replaced(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """A copy in which `change` was applied to the value at `path`; the rest is shared."""
    if not path:
        return change(value)
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], change)
    return copy


def _without(key: str | int) -> Callable[[Any], Any]:
    def change(container: Any) -> Any:
        if isinstance(container, dict):
            return {name: inner for name, inner in container.items() if name != key}
        return [inner for index, inner in enumerate(container) if index != key]

    return change


def _renamed(key: str) -> Callable[[Any], Any]:
    return lambda container: {name + "x" if name == key else name: inner for name, inner in container.items()}


def _swapped(index: int) -> Callable[[Any], Any]:
    return lambda items: [*items[:index], items[index + 1], items[index], *items[index + 2 :]]


def _to(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _doubled(index: int) -> Callable[[Any], Any]:
    return lambda items: [*items[: index + 1], *items[index:]]


def mutations(document: Any, every: int = 1) -> Iterator[Mutation]:
    """The mutations of a valid manifest, in the order of its places: of each place, or of every so many."""
    for path, value in islice(places(document), 0, None, every):
        for operation, where, change in _changes(document, path, value):
            yield Mutation(operation, path, value, partial(replaced, document, where, change))


def _changes(document: Any, path: Path, value: Any) -> Iterator[tuple[str, Path, Callable[[Any], Any]]]:
    parent, key = path[:-1], path[-1]
    yield "drop", parent, _without(key)
    if isinstance(key, str):
        yield "rename", parent, _renamed(key)
    else:
        siblings = at(document, parent)
        yield "duplicate", parent, _doubled(key)
        if parent[-1] != "add" and key + 1 < len(siblings) and siblings[key] != siblings[key + 1]:
            yield "swap with the next", parent, _swapped(key)
    if isinstance(value, bool):
        yield "flip", path, lambda flag: not flag
    elif isinstance(value, int | float):
        yield from _of_number(path, value)
    elif isinstance(value, str):
        yield from _of_text(path, value)
    elif isinstance(value, list):
        yield "empty", path, lambda items: []
    if len(path) == 2 and path[0] in SECTIONS:
        yield from _misplaced(path, value)


def _of_number(path: Path, value: float) -> Iterator[tuple[str, Path, Callable[[Any], Any]]]:
    if value != 0:
        yield "zero", path, lambda number: 0 * number
    yield "negate", path, lambda number: -number - (number == 0)
    yield "overflow", path, lambda number: 2**63 if isinstance(number, int) else 1e39
    yield "enlarge", path, lambda number: 2**62 if isinstance(number, int) else 3e38
    yield "off by one", path, lambda number: number + 1
    yield "as text", path, str
    yield "as true", path, lambda number: True
    if isinstance(value, int):
        yield "as float", path, float


def _of_text(path: Path, text: str) -> Iterator[tuple[str, Path, Callable[[Any], Any]]]:
    yield "misspell", path, lambda name: name + "x"
    yield "blank", path, lambda name: ""
    yield "as number", path, lambda name: 1
    if path[-1] == "dtype":
        yield "retype", path, lambda dtype: DTYPES[(DTYPES.index(dtype) + 1) % len(DTYPES)]
    if path[-1] == "class":
        for class_ in CLASSES:
            if class_ != text:
                yield f"make {class_}", path, _to(class_)
    if len(path) > 1 and path[-2] == "params":
        yield from _of_param(path, text)


def _of_param(path: Path, text: str) -> Iterator[tuple[str, Path, Callable[[Any], Any]]]:
    words = text.split(" ")
    if words[0] in ("in", "out", "inout"):
        for direction in ("in", "out", "inout"):
            if direction != words[0]:
                changed = " ".join([direction, *words[1:]])
                yield f"make {direction}", path, _to(changed)
        yield "make scalar", path, lambda name: "i32"
        yield "align 4096", path, lambda name: name.split(" align")[0] + " align 4096"
    else:
        yield "widen", path, lambda name: {"i32": "i64", "i64": "i32", "u32": "u8", "u8": "u32"}.get(name, "i32")
        yield "make pointer", path, lambda name: "in ptr"


def _misplaced(path: Path, value: Any) -> Iterator[tuple[str, Path, Callable[[Any], Any]]]:
    section, name = path
    other = SECTIONS[(SECTIONS.index(str(section)) + 1) % len(SECTIONS)]

    def move(document: Any) -> Any:
        kept = {key: inner for key, inner in document[section].items() if key != name}
        return {**document, section: kept, other: {**document.get(other, {}), name: value}}

    yield "move to another section", (), move
