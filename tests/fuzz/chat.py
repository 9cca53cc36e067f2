"""Fuzz target: chat templates. One renders a conversation into text within bounds, or is refused."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

from fuzz.byte_changes import change_bytes
from fuzz.target import ACCEPTED, Target, require
from kern.text.chat import Message, render
from support.tokenizers import bytes_tokenizer

CHATML = (
    "{% if messages[0].role != 'system' %}{{ '<|im_start|>system\\nBe brief<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' }}"
    "{{ '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TURNS = (
    "{%- set ns = namespace(last=-1) -%}{{- bos_token -}}{%- for m in messages -%}{%- if m.role == 'user' -%}"
    "{%- set ns.last = loop.index0 -%}[INST] {{ m.content | trim }} [/INST]{%- elif loop.first -%}{%- continue -%}"
    "{%- else -%}{{ raise_exception('roles must alternate') if loop.index0 == ns.last else m.content }}{{ eos_token }}"
    "{%- endif -%}{%- endfor -%}"
)
TOOLS = (
    "{% macro shown(value, deep=0) %}{% if value is string %}{{ value }}{% else %}{{ value | tojson(indent=2) }}"
    "{% endif %}{% endmacro %}{% if tools %}{{ shown(tools) }}{% endif %}{{ strftime_now('%d %b %Y')[:0] }}"
    "{% for message in messages[::-1] %}{{ shown(message.content) }}{% endfor %}{{ shown({'a': [1, 2.5, none]}) }}"
)
VALUES = (
    *("messages", "message", "loop", "ns", "none", "''", "'a'", "0", "-1", "10**9", "1e308*10", "[]", "{}", "range(9)"),
    *("range(10**7)", "bos_token", "undefined", "self", "caller", "cycler('a')", "joiner()", "lipsum(1)", "dict(a=1)"),
    *(
        "messages[0].content",
        "'%s' % 1",
        "'{}'.format(1)",
        "'a'*3000000000",
        "2**10**8",
        "namespace(a=1)",
        "().__class__",
    ),
)
FILTERS = (
    *("length", "trim", "tojson", "int", "float", "list", "join", "first", "last", "upper", "string", "safe", "sum"),
    *("reverse", "sort", "unique", "batch(2)", "slice(0)", "center(10**9)", "indent(10**8)", "replace('a','aa')"),
    *("map('upper')", "groupby('role')", "attr('__init__')", "format(1)", "truncate(1)", "wordwrap(0)", "round(400)"),
    *("selectattr('role')", "xmlattr", "urlize", "filesizeformat", "pprint", "random", "items", "dictsort", "abs"),
)
BLOCKS = (
    *(
        "{% break %}",
        "{% continue %}",
        "{% for a in {} %}",
        "{% for a in {} recursive %}",
        "{% endfor %}",
        "{% else %}",
    ),
    *("{% if {} %}", "{% elif {} %}", "{% endif %}", "{% set a = {} %}", "{% set ns.a = {} %}", "{% set a %}"),
    *("{% endset %}", "{% macro m(a, b={}) %}", "{% endmacro %}", "{{ m({}) }}", "{% call m({}) %}", "{% endcall %}"),
    *("{% include 'a' %}", "{% extends {} %}", "{% import 'a' as b %}", "{% raw %}", "{% endraw %}", "{% block a %}"),
    *("{{ loop({}) }}", "{% filter upper %}", "{% endfilter %}", "{# {} #}", "{% generation %}", "{% endgeneration %}"),
    *("{% do {} %}", "{{ super() }}", "{{ raise_exception({}) }}", "{{ strftime_now({}) }}", "{% with a={} %}", "{#"),
)


@cache
def seeds() -> tuple[bytes, ...]:
    """Templates as models have them."""
    return CHATML.encode(), TURNS.encode(), TOOLS.encode()


def change(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Put in a block or an expression, or loops in each other; take a block out; or change bytes anywhere."""
    if random.random() < 0.25:
        return change_bytes(random, data, others)
    pieces = _pieces(data)
    at = random.randrange(len(pieces) + 1)
    kind = random.randrange(6)
    if kind < 2:
        pieces.insert(at, ("{{ " + _expression(random) + " }}").encode())
    elif kind < 4:
        pieces.insert(at, random.choice(BLOCKS).replace("{}", _expression(random)).encode())
    elif kind < 5:
        depth = random.choice((1, 1, 2, 5, 25, 200))
        pieces[at:] = [b"{% for a in " + _expression(random).encode() + b" %}"] * depth + pieces[at:]
        pieces += [b"{% endfor %}"] * random.choice((depth, depth, depth - 1))
    elif pieces:
        del pieces[at - 1]
    return b"".join(pieces)


def _pieces(data: bytes) -> list[bytes]:
    """The template cut before each block and after each block's end."""
    for mark in (b"{%", b"{{"):
        data = data.replace(mark, b"\0" + mark)
    for mark in (b"%}", b"}}"):
        data = data.replace(mark, mark + b"\0")
    return [piece for piece in data.split(b"\0") if piece]


def _expression(random: Random) -> str:
    text = random.choice(VALUES)
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        other = random.choice(VALUES)
        operator = random.choice(("+", "*", "~", "-", "**", "//", "%", " in ", " == ", " and ", " if not ", " is "))
        text = random.choice((
            f"{text} | {random.choice(FILTERS)}", f"{text}[{other}]", f"({text} {operator} {other})",
            f"{text}({other})",
            f"[{text}, {other}]", f"{text}.{random.choice(('role', 'append', 'items()', '__class__', 'format(a=1)'))}",
            f"{text} is {random.choice(('defined', 'string', 'mapping', 'iterable', 'none', 'divisibleby 0'))}",
            f"({text} if {other} else {other})", f"{text}[{other}:]", f"not {text}", f"-({text})",
        ))  # fmt: skip
    return text


def run(data: bytes, folder: Path) -> str:
    """Render a conversation."""
    tokenizer = bytes_tokenizer(bos=258, template=data.decode("utf-8", "replace"))
    messages = [
        Message(role="user", content="Hello {{ 1 }}"),
        Message(role="assistant", content="Hi"),
        Message(role="user", content="é\n"),
    ]
    text = render(tokenizer, messages)
    require(isinstance(text, str), f"no text: {type(text)}")
    return ACCEPTED


TARGET = Target("chat", seeds, change, run, short=150)
