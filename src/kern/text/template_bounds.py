"""Limits of a chat template: its steps, the text that it produces, and the size of one value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kern.manifest.errors import KernError

LARGEST: Final = 2**20
"""Maximum number of characters of one value and of the output; or four times the input, if that is more."""
ELEMENT: Final = 8
"""An element of a list counts as this many characters: the bytes of a pointer."""
TOTAL: Final = 64
"""Maximum size of all intermediate values together, as a multiple of the largest value."""
STEPS: Final = 2**24
"""Maximum number of steps: statements, long ones counted several times, values, and elements seen by filters."""
INT_BITS: Final = 2**16
MAX_PRECISION: Final = 400
_ESCAPED: Final = 12
"""Maximum number of characters that `%r` and `%a` produce per character."""
_NUMBER: Final = 400
"""Maximum number of characters of a formatted float."""

_VIEWS: Final[tuple[type[Any], ...]] = (type({}.keys()), type({}.values()), type({}.items()))
_CONTAINERS: Final[tuple[type[Any], ...]] = (list, tuple, dict, set, *_VIEWS)
"""Concrete classes: checks against abstract ones would run Python code for each element."""


class ChatError(KernError, code="chat-template", exit_code=2, help="give the prompt without a chat template"):
    """The folder has no chat template, or the template refuses the messages."""


def exceeded(what: str) -> ChatError:
    """The error of a template that exceeds a limit."""
    return ChatError(f"the folder's chat template {what}", "shorten the messages, or give the model another template")


def _large_number() -> ChatError:
    return exceeded(f"computes an integer of more than {INT_BITS:,} bits")


class Bounds:
    """The budget of one rendering.

    Every value has at most `largest` characters, with shared parts counted each time, so printing, comparing and
    hashing a value takes linear time. Each new value is also charged to a total, and the compiled template counts
    steps, so that memory and work are bounded. A step may take time proportional to a value's size; Ctrl-C works
    between two steps.
    """

    def __init__(self, names: Any) -> None:
        """`names` are what the template is rendered with."""
        self._steps, self.largest = STEPS, LARGEST
        self.largest = max(LARGEST, 4 * self._weight(names, None))
        self._steps, self._total = STEPS, TOTAL * self.largest

    def step(self, count: int = 1) -> None:
        """Count `count` steps. Raises ChatError if there were too many."""
        self._steps -= count
        if self._steps < 0:
            raise exceeded(f"takes more than {STEPS:,} steps")

    def each(self, values: Iterable[Any]) -> Iterator[Any]:
        """`values`, with a step counted for each."""
        return _Each(self, values)

    def expect(self, size: int) -> None:
        """Check that `size` further characters are within the total. Raises ChatError."""
        if size > self._total:
            raise exceeded(f"makes intermediate values of more than {TOTAL * self.largest:,} characters")

    def made(self, value: Any) -> Any:
        """`value`, checked against the limits and charged to the total. Raises ChatError."""
        self.step()
        self.weigh(value)
        size = len(value) if isinstance(value, (str, bytes, dict, list, tuple)) else 1
        self.expect(size)
        self._total -= size
        return value

    def weigh(self, value: Any) -> int:
        """The number of characters of `value`. Raises ChatError if it is too large."""
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

    # Operations that multiply sizes: checked before they run.

    def operator(self, operator: str, left: Any, right: Any) -> None:
        """Raises ChatError if the result of an operator would be too large."""
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
        """The maximum number of characters of `text % values`."""
        shown = text if isinstance(text, str) else text.decode("latin-1")
        each = (
            values if isinstance(values, tuple) else tuple(values.values()) if isinstance(values, dict) else (values,)
        )
        stars = sum(abs(value) for value in each if isinstance(value, int)) if "*" in shown else 0
        longest = max((self.weigh(value) for value in (*each, values)), default=0)
        return len(text) + widths(shown) + stars + shown.count("%") * (_ESCAPED * longest + _NUMBER)

    def method(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments of a method of a text or number, after a check of the size of its result."""
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
    """Not a generator: freeing a chain of 100,000 nested generators crashes Python."""

    def __init__(self, bounds: Bounds, values: Iterable[Any]) -> None:
        self._step, self._values = bounds.step, values
        self._iterator: Iterator[Any] | None = None

    def __next__(self) -> Any:
        self._step()
        if self._iterator is None:
            self._iterator = iter(self._values)
        return next(self._iterator)


def widths(spec: str) -> int:
    """The sum of all numbers in a format: the maximum padding."""
    return sum(int(run[-9:]) if len(run) < 10 else 10**9 for run in re.findall(r"[0-9]+", spec))


def _padded(text: Any, width: Any, *_: Any) -> int:
    return int(width)


def _tabs(text: Any, tabsize: int = 8) -> int:
    return len(text) + len(text) * max(tabsize, 0)


def replaced(text: Any, old: Any, new: Any, count: Any = -1, *_: Any) -> int:
    """The maximum number of characters of `text` with `old` replaced."""
    times: int = text.count(old)
    return len(text) + (times if count is None or count < 0 else min(times, count)) * len(new)


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
    """The arguments of a filter, the filtered value first, after a check of the result's size. Raises ChatError."""
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
    bounds.step(ELEMENT * int(slices))  # each slice is a list, even if empty
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
        raise exceeded(f"rounds to {precision:,} digits; the limit is {MAX_PRECISION}")
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
"""Filters that run Python code for each element."""
