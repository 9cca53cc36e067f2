"""How much a chat template may do: its steps, the text it makes, and how large one value of it may be."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kern.manifest.errors import KernError

LARGEST: Final = 2**20
"""Characters that one value, and what the template puts out, may have; or four times those it is given, if more."""
ELEMENT: Final = 8
"""An element of a list counts as so many characters, as many bytes as it takes."""
TOTAL: Final = 64
"""All that is made on the way, as a multiple of the largest value."""
STEPS: Final = 2**24
"""Statements that run, a long one counted several times, values that are made, and elements that a filter looks at."""
INT_BITS: Final = 2**16
MAX_PRECISION: Final = 400
_ESCAPED: Final = 12
"""Characters that `%r` and `%a` make of one, at most."""
_NUMBER: Final = 400
"""Characters of a float that is written out, at most."""

_VIEWS: Final[tuple[type[Any], ...]] = (type({}.keys()), type({}.values()), type({}.items()))
_CONTAINERS: Final[tuple[type[Any], ...]] = (list, tuple, dict, set, *_VIEWS)
"""Classes, not abstract ones: to ask for those is to run Python for each element."""


class ChatError(KernError, code="chat-template", exit_code=2, help="give the prompt without a chat template"):
    """The folder has no chat template, or the template refuses the messages."""


def exceeded(what: str) -> ChatError:
    """The error of a template that goes beyond a bound."""
    return ChatError(f"the folder's chat template {what}", "shorten the messages, or give the model another template")


def _large_number() -> ChatError:
    return exceeded(f"makes a whole number of more than {INT_BITS:,} bits")


class Bounds:
    """What one rendering may still do.

    Every value that a template can hold has at most `largest` characters, counted as if nothing in it were shared: so
    printing, comparing and hashing one is linear in that. What is made is charged on a total, and
    the compiled template counts what runs, so that memory and work are bounded too. A step may take as long as a
    value is large; between two steps Ctrl-C is heeded.
    """

    def __init__(self, given: Any) -> None:
        """`given` is what the template is rendered with."""
        self._steps, self.largest = STEPS, LARGEST
        self.largest = max(LARGEST, 4 * self._weight(given, None))
        self._steps, self._total = STEPS, TOTAL * self.largest

    def step(self, count: int = 1) -> None:
        """Take `count` steps. Raises ChatError where these were too many."""
        self._steps -= count
        if self._steps < 0:
            raise exceeded(f"takes more than {STEPS:,} steps")

    def each(self, values: Iterable[Any]) -> Iterator[Any]:
        """`values`, a step for each as it is asked for."""
        return _Each(self, values)

    def expect(self, size: int) -> None:
        """Make sure of room for `size` characters before they are made. Raises ChatError."""
        if size > self._total:
            raise exceeded(f"makes more than {TOTAL * self.largest:,} characters on the way")

    def made(self, value: Any) -> Any:
        """`value`, once it is known to be within bounds and has been charged. Raises ChatError."""
        self.step()
        self.weigh(value)
        size = len(value) if isinstance(value, (str, bytes, dict, list, tuple)) else 1
        self.expect(size)
        self._total -= size
        return value

    def weigh(self, value: Any) -> int:
        """The characters of `value`. Raises ChatError where these are too many."""
        return self._weight(value, self.largest)

    def _weight(self, value: Any, most: int | None) -> int:
        total, waiting = 0, [value]
        while waiting:
            each = waiting.pop()
            total += 1
            if isinstance(each, (str, bytes)):
                total += len(each)
            elif isinstance(each, int):
                if each.bit_length() > INT_BITS:
                    raise _large_number()
                total += each.bit_length() // 64
            elif isinstance(each, _CONTAINERS):
                self.step(len(each))
                total += ELEMENT * len(each)
                waiting += each
                waiting += each.values() if isinstance(each, dict) else ()
            if most is not None and total > most:
                raise exceeded(f"makes a value of more than {most:,} characters")
        return total

    # What multiplies: sizes before anything is made.

    def operator(self, operator: str, left: Any, right: Any) -> None:
        """Raises ChatError where the result of an operator would be too large."""
        if operator == "*":
            for value, times in ((left, right), (right, left)):
                if isinstance(times, int) and isinstance(value, (str, bytes, list, tuple)):
                    self.expect(len(value) * max(times, 0))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            if (left.bit_length() - 1) * right > INT_BITS:
                raise _large_number()
        elif operator == "%" and isinstance(left, (str, bytes)):
            self.expect(self.printf(left, right))

    def printf(self, text: str | bytes, values: Any) -> int:
        """The most that `text % values` can have."""
        shown = text if isinstance(text, str) else text.decode("latin-1")
        each = (
            values if isinstance(values, tuple) else tuple(values.values()) if isinstance(values, dict) else (values,)
        )
        stars = sum(abs(value) for value in each if isinstance(value, int)) if "*" in shown else 0
        longest = max((self.weigh(value) for value in (*each, values)), default=0)
        return len(text) + widths(shown) + stars + shown.count("%") * (_ESCAPED * longest + _NUMBER)

    def method(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments of a call of a text's or number's own method, once its result is known to have room."""
        owner, name = getattr(function, "__self__", None), getattr(function, "__name__", None)
        if isinstance(owner, (str, bytes)) and name == "join" and args:
            items = list(args[0])
            self.expect(sum(map(len, items)) + len(owner) * len(items))
            return items, *args[1:]
        if isinstance(owner, (str, bytes)) and name in _METHODS:
            self.expect(_METHODS[name](owner, *args, **kwargs))
        if isinstance(owner, int) and name == "to_bytes":
            self.expect(int((*args, kwargs.get("length", 1))[0]))
        return args


class _Each(Iterator[Any]):
    """Not a generator: a chain of 100,000 of those, each of the one before, crashes Python when it is freed."""

    def __init__(self, bounds: Bounds, values: Iterable[Any]) -> None:
        self._step, self._values = bounds.step, values
        self._iterator: Iterator[Any] | None = None

    def __next__(self) -> Any:
        self._step()
        if self._iterator is None:
            self._iterator = iter(self._values)
        return next(self._iterator)


def widths(spec: str) -> int:
    """The sum of all numbers in a format: the most that they can pad with."""
    return sum(int(run[-9:]) if len(run) < 10 else 10**9 for run in re.findall(r"[0-9]+", spec))


def _padded(text: Any, width: Any, *_: Any) -> int:
    return int(width)


def _tabs(text: Any, tabsize: int = 8) -> int:
    return len(text) + len(text) * max(tabsize, 0)


def replaced(text: Any, old: Any, new: Any, count: Any = -1, *_: Any) -> int:
    """The most that `text` can have with `old` replaced."""
    found: int = text.count(old)
    return len(text) + (found if count is None or count < 0 else min(found, count)) * len(new)


def _translated(text: Any, table: Any, *_: Any) -> int:
    values: Iterable[Any] = table.values() if isinstance(table, dict) else ()
    return len(text) * max((len(value) for value in values if isinstance(value, str)), default=1)


_METHODS: Final[dict[str, Callable[..., int]]] = {
    "center": _padded,
    "ljust": _padded,
    "rjust": _padded,
    "zfill": _padded,
    "expandtabs": _tabs,
    "replace": replaced,
    "translate": _translated,
}


def filter_size(
    bounds: Bounds, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a filter, the filtered value first, once its result is known to have room. Raises ChatError."""
    if name == "join" and args:
        items = list(args[0])
        separator = args[1] if len(args) > 1 else kwargs.get("d", "")
        bounds.expect(bounds.weigh(items) + len(items) * bounds.weigh(separator))
        args = items, *args[1:]
    elif name in _FILTERS:
        bounds.expect(_FILTERS[name](bounds, *args, **kwargs))
    if name in _EACH and args and args[0]:
        args = bounds.each(args[0]), *args[1:]
    return args, kwargs


def _centered(bounds: Bounds, value: Any, width: Any = 80) -> int:
    return int(width)


def _indented(bounds: Bounds, value: Any, width: Any = 4, *_: Any, **__: Any) -> int:
    text = str(value)
    return len(text) + (len(text.splitlines()) + 1) * (len(width) if isinstance(width, str) else int(width))


def _batched(bounds: Bounds, value: Any, linecount: Any, fill_with: Any = None) -> int:
    return int(linecount) if fill_with is not None else 0


def _sliced(bounds: Bounds, value: Any, slices: Any, fill_with: Any = None) -> int:
    bounds.step(ELEMENT * int(slices))  # each is a list, empty or not
    return 0


def _replaced(bounds: Bounds, value: Any, old: Any, new: Any, count: Any = None) -> int:
    return replaced(str(value), str(old), str(new), count)


def _formatted(bounds: Bounds, value: Any, *args: Any, **kwargs: Any) -> int:
    return bounds.printf(str(value), kwargs or args)


def _wrapped(
    bounds: Bounds, value: Any, width: Any = 79, long_words: Any = True, wrapstring: Any = None, *_: Any, **__: Any
) -> int:
    return len(value) * (1 + len(wrapstring or "\n"))


def _linked(bounds: Bounds, value: Any, *args: Any, **kwargs: Any) -> int:
    text = str(value)
    return len(text) * (4 + text.count(".") * bounds.weigh((args, kwargs)))


def _precise(bounds: Bounds, value: Any, precision: Any = 0, method: Any = "common") -> int:
    if abs(int(precision)) > MAX_PRECISION:
        raise exceeded(f"rounds to {precision:,} places, and {MAX_PRECISION} are computed")
    return _NUMBER


_FILTERS: Final[dict[str, Callable[..., int]]] = {
    "batch": _batched,
    "center": _centered,
    "format": _formatted,
    "indent": _indented,
    "replace": _replaced,
    "round": _precise,
    "slice": _sliced,
    "urlize": _linked,
    "wordwrap": _wrapped,
}
_EACH: Final = frozenset(
    ("batch", "groupby", "map", "max", "min", "reject", "rejectattr", "select", "selectattr", "slice", "sort", "unique")
)
"""Filters that run Python for each element."""
