"""Chat templates, rendered as transformers does: Jinja in its sandbox, within bounds."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from types import CodeType, GeneratorType
from typing import Any, Final, NoReturn

from jinja2 import Template, TemplateSyntaxError, nodes, pass_context
from jinja2.ext import Extension
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro, markup_join, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEscapeFormatter, SandboxedFormatter
from jinja2.utils import Namespace
from markupsafe import Markup

from kern.text.template_bounds import Bounds, ChatError, exceeded, filter_size, widths
from kern.text.template_code import Code

LARGEST_TEMPLATE: Final = 2**17
"""Maximum number of characters of a template."""
_TEMPLATES: Final = 8
"""Number of compiled templates in the cache."""
_INTERNAL_ARGS: Final = ("_loop_vars", "_block_vars")
"""Arguments that compiled code passes to `Environment.call`, not to the function that is called."""
_REASON: Final = 200
_STRFTIME: Final = 256
"""Maximum number of characters that one character of a strftime format can produce."""


def rendered(template: str, names: Mapping[str, Any]) -> str:
    """`template` rendered with `names`. Every failure is a ChatError; KeyboardInterrupt ends it at any time.

    The environment is that of transformers (`chat_template_utils.py`): block trimming, `{% generation %}`,
    `{% break %}` and `{% continue %}`, `raise_exception`, `strftime_now`, and a `tojson` that escapes nothing for
    HTML. A template comes with a model and is not trusted, so it runs in Jinja's sandbox and within `Bounds`.
    """
    if len(template) > LARGEST_TEMPLATE:
        raise exceeded(f"has {len(template):,} characters; the limit is {LARGEST_TEMPLATE:,}")
    try:
        bounds = Bounds(dict(names))
        environment = _Environment(bounds)
        compiled = Template.from_code(environment, _code(template), environment.make_globals(None))
        return "".join(_within(bounds, compiled.generate(dict(names))))
    except ChatError:
        raise
    except Exception as error:
        raise ChatError(f"the folder's chat template fails: {_reason(error)}") from error


@lru_cache(_TEMPLATES)
def _code(template: str) -> CodeType:
    """The compiled template. Compiling takes longer than rendering a short chat."""
    with warnings.catch_warnings(action="ignore"):  # Python warns about some code, such as `1[2]`
        return _Environment(Bounds({})).compile(template)


def _within(bounds: Bounds, pieces: Iterable[str]) -> Iterator[str]:
    """The pieces of the output. Raises ChatError once they exceed the bounds."""
    length = 0
    for piece in pieces:
        length += len(piece)
        if length > bounds.largest:
            raise exceeded(f"outputs more than {bounds.largest:,} characters")
        yield piece


def _reason(error: Exception) -> str:
    """The reason on one line. Line numbers of Python's own SyntaxError are those of the compiled code, so left out."""
    if isinstance(error, TemplateSyntaxError):
        return f"{one_line(error.message)} (line {error.lineno})"
    message = error.msg if isinstance(error, SyntaxError) else error
    return one_line(message) or ("out of memory" if isinstance(error, MemoryError) else type(error).__name__)


def one_line(text: object) -> str:
    """`text` as one line, shortened."""
    line = " ".join(str(text)[: 2 * _REASON].split())
    return line if len(line) <= _REASON else line[:_REASON] + "…"


class _GenerationBlock(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks the assistant's text: its body is rendered."""

    tags: Final = {"generation"}  # type: ignore[misc]

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller: Macro) -> str:
        return caller()


class _Namespace(Namespace):
    """A namespace that prints without its content, which may change after its size was checked."""

    def __repr__(self) -> str:
        return "<Namespace>"


class _Environment(ImmutableSandboxedEnvironment):
    """The environment of transformers' templates; every value that can grow is checked by `bounds`."""

    code_generator_class = Code
    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"],
            finalize=self._as_text,
        )
        self.bounds, self.step, self.made = bounds, bounds.step, bounds.made  # as compiled code calls them
        self.filters |= {"sum": self._sum, "tojson": self._json}
        unbounded = self.overlay()
        self.filters = {name: _bounded(unbounded, name) for name in self.filters}
        self._lorem_ipsum: Any = self.globals["lipsum"]
        self.globals["lipsum"] = self._lipsum
        self.globals["namespace"] = _Namespace
        self.globals["raise_exception"] = _refuse
        self.globals["strftime_now"] = self._now

    def stepped(self, count: int) -> bool:
        """Count `count` steps. Always true."""
        self.step(count)
        return True

    def joined(self, autoescape: bool, values: tuple[Any, ...]) -> Any:
        """The concatenation of `values` with `~`."""
        self.bounds.expect(sum(map(self.bounds.weigh, values)))
        return self.made(markup_join(values) if autoescape else str_join(values))

    def concat(self, pieces: Iterable[str]) -> str:
        """The output of a macro, a call or a block."""
        items, size = [], 0
        for piece in pieces:
            size += len(piece)
            self.bounds.expect(size)
            items.append(piece)
        return str(self.made("".join(items)))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.bounds.operator(operator, left, right)
        return self.made(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        named = {name: value for name, value in kwargs.items() if name not in _INTERNAL_ARGS}
        __self.bounds.weigh((args, named))
        args = __self.bounds.method(__obj, args, named)
        return __self.made(super().call(__context, __obj, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        text, name = value.__self__, value.__name__
        escape = isinstance(text, Markup)
        formatter = _EscapeFormatter(self, escape=text.escape) if escape else _Field(self)

        def formatted(*args: Any, **kwargs: Any) -> str:
            if name == "format_map":
                (kwargs,), args = args, ()
            made: str = type(text)(formatter.vformat(text, args, kwargs))
            return made

        return formatted

    def _as_text(self, value: Any) -> Any:
        """An output value as text; text keeps its class."""
        return value if isinstance(value, str) else self.made(str(value))

    def _lipsum(self, n: int = 5, html: bool = True, min: int = 20, max: int = 100) -> Any:
        self.bounds.step(n * max)
        return self._lorem_ipsum(n, html, min, max)

    def _now(self, form: str) -> str:
        self.bounds.expect(_STRFTIME * len(form))
        return datetime.now().strftime(form)

    def _sum(self, values: Iterable[Any], attribute: Any = None, start: Any = 0) -> Any:
        if attribute is not None:
            values = map(make_attrgetter(self, attribute), values)
        for value in values:
            self.bounds.operator("+", start, value)
            start = self.made(start + value)
        return start

    def _json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        if isinstance(indent, int):
            self.bounds.expect(indent)
        encoder: json.JSONEncoder = json.JSONEncoder(
            ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )
        if indent is None and separators is None:
            return encoder.encode(value)
        return self.concat(self.bounds.each(encoder.iterencode(value)))


def _bounded(unbounded: _Environment, name: str) -> Callable[..., Any]:
    """A filter that checks the size of its result. It takes the context, so Jinja does not run it at compile time."""
    bounds = unbounded.bounds

    @pass_context
    def filtered(context: Context, *args: Any, **kwargs: Any) -> Any:
        (value, *others), kwargs = filter_size(bounds, name, args, kwargs)
        made = unbounded.call_filter(name, value, others, kwargs, context)
        return bounds.made(bounds.each(made) if isinstance(made, GeneratorType) else made)

    return filtered


class _Field(SandboxedFormatter):
    """Fields of `str.format`, each padded within bounds."""

    _env: _Environment

    def format_field(self, value: Any, format_spec: str) -> Any:
        self._env.bounds.expect(widths(format_spec))
        return self._env.made(super().format_field(value, format_spec))


class _EscapeFormatter(_Field, SandboxedEscapeFormatter):
    pass


def _refuse(reason: object) -> NoReturn:
    raise ChatError(f"the folder's chat template refuses these messages: {one_line(reason)}")
