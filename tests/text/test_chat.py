"""Chat templates: rendered as transformers would, and kept in their sandbox."""

from __future__ import annotations

import signal
import sys
import tracemalloc
from datetime import datetime
from pathlib import Path

import pytest
from jinja2 import sandbox

from kern.contracts.text import DecodeBytes, TextSettings
from kern.text import Tokenizer, chat_prompt, template, template_bounds
from kern.text.chat import Message, render
from kern.text.template_bounds import ChatError
from kern.text.tokenizer import NotText
from support.tokenizers import bytes_tokenizer
from support.work import bytecodes

HELLO: list[Message] = [{"role": "user", "content": "hello"}]


def tokenizer(template: str | None) -> Tokenizer:
    bytes_read = DecodeBytes(fixed=1, per_context_token=1)
    settings = TextSettings(
        vocabulary=3,
        positions=64,
        embedding="table",
        stop_ids=(),
        bos=None,
        chat_template=template,
        tokenizer_sha256=None,
        decode_bytes=bytes_read,
    )
    return Tokenizer(settings, None)


def test_blocks_leave_no_lines_of_their_own() -> None:
    template = "{% for m in messages %}\n  {% if m.role == 'user' %}\n<{{ m.content }}>\n  {% endif %}\n{% endfor %}\n"

    assert render(tokenizer(template), HELLO) == "<hello>\n"


def test_the_assistant_is_given_the_word() -> None:
    template = "{{ messages[0]['content'] }}{% if add_generation_prompt %}|assistant{% endif %}"

    assert render(tokenizer(template), HELLO) == "hello|assistant"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (None, "this folder has no chat template"),
        ("{{ raise_exception('roles must\nalternate') }}", "refuses these messages: roles must alternate"),
        ("{{ raise_exception('a' * 100000) }}", "refuses these messages: aaaa"),
        ("\n{% for %}", "fails: Expected an expression, got 'end of statement block' (line 2)"),
        ("{% generation %}", "fails: Unexpected end of template"),
        ("{% break %}", "fails: 'break' outside loop"),
        ("{{ dict(a=1,a=2) }}", "fails: keyword argument repeated: a"),
        ("{% for i in [1] %}" * 25 + "{% endfor %}" * 25, "fails: too many statically nested blocks"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "fails: maximum recursion depth exceeded"),
        ("{{ " + "1+" * 5000 + "1 }}", "fails: maximum recursion depth exceeded"),
        ("{{ messages[3].content }}", "fails: list object has no element 3"),
        ("{{ nothing.content }}", "fails: 'nothing' is undefined"),
        ("{{ nothing() }}", "fails: 'nothing' is undefined"),
        ("{{ ''.__class__.__mro__ }}", "is unsafe"),
        ("{{ messages.append(1) }}", "is unsafe"),
        ("{{ [].pop() }}", "is unsafe"),
        ("{{ ('{0.__class__.x}'|attr('format'))(1) }}", "is unsafe"),
        ("{{ '{0.__class__.__mro__}'.format(1) }}", "is unsafe"),
        ("{{ 1 / 0 }}", "fails: division by zero"),
        ("{{ messages[0].content + 1 }}", "fails: can only concatenate str"),
        ("{{ 'a'.foo() }}", "has no attribute 'foo'"),
        ("{{ 1 | foo }}", "fails: No filter named 'foo'. (line 1)"),
        ("{% include 'other' %}", "fails: no loader for this environment specified"),
        ("{{ namespace(a=1).b.c }}", "has no attribute 'b'"),
        ("{{ '%d' % 'x' }}", "fails: %d format"),
        ("{{ (1e308*10)|int }}", "fails: cannot convert float infinity to integer"),
        ("{{ messages | tojson(indent=messages) }}", "fails"),
        ("{{ messages[0] | tojson(separators=1) }}", "fails"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "fails: maximum recursion depth exceeded"),
        ("{% macro m() %}{{ {}[m] }}{{ caller() }}{% endmacro %}{{ m() }}", "fails"),
        ("{{ strftime_now('\ud800') }}", "fails"),
        ("{% set n = namespace(g=[1]) %}{% for i in range(40000) %}{% set n.g = n.g | map('e') %}{% endfor %}"
         "{{ n.g | list }}", "fails: maximum recursion depth exceeded"),
    ],
)  # fmt: skip
def test_what_cannot_be_rendered_is_one_line(template: str | None, says: str) -> None:
    with pytest.raises(ChatError) as caught:
        render(tokenizer(template), HELLO)

    assert says in caught.value.message
    assert "chat template" in caught.value.message
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300


MANY = "makes intermediate values of more than 67,108,864 characters"
LARGE = "makes a value of more than 1,048,576 characters"
LONG = "outputs more than 1,048,576 characters"
STEPS = "takes more than 262,144 steps"
BITS = "computes an integer of more than 65,536 bits"
NAMED = "{% set n = namespace(a='ab') %}"
DOUBLE = "{% set ns = namespace(a=('x' * 100000,)) %}{% for i in range(100) %}{% set ns.a = DOUBLED %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ 'a' * 3000000000 }}", MANY),
        ("{{ 3000000000 * [1] }}", MANY),
        ("{{ 'ab'.encode() * 3000000000 }}", MANY),
        ("{{ 10 ** (10 ** 9) }}", BITS),
        ("{{ (-3) ** 10000000 }}", BITS),
        (DOUBLE.replace("('x' * 100000,)", "3").replace("DOUBLED", "ns.a * ns.a"), BITS),
        ("{{ ('f' * 100000) | int(0, 16) // 3 }}", BITS),
        ("{{ range(1000000) }}", "The sandbox blocks ranges larger than MAX_RANGE (100000)"),
        ("{{ '%1000000000d' % 1 }}", MANY),
        ("{{ '%.1000000000f' % 1 }}", MANY),
        ("{{ '%*d' % (1000000000, 1) }}", MANY),
        ("{{ '%1000000000d' | format(1) }}", MANY),
        ("{{ ('%(a)s' * 100000) % {'a': 'x' * 100000} }}", MANY),
        ("{{ '{:1000000000}'.format(1) }}", MANY),
        ("{{ '{:{}}'.format(1, 1000000000) }}", MANY),
        ("{{ '{a:99999999999}'.format_map({'a': 1}) }}", MANY),
        ("{{ ['{:1000000000}'] | map('attr', 'format') | list }}{{ ('{:1000000000}'|attr('format'))(1) }}", MANY),
        ("{{ ('{0}' * 100000).format('x' * 100000) }}", MANY),
        ("{{ 'a' | center(3000000000) }}", MANY),
        ("{% filter center(3000000000) %}a{% endfilter %}", MANY),
        ("{{ ['a'] | map('center', 3000000000) | list }}", MANY),
        ("{{ 'a' | indent(3000000000, true) }}", MANY),
        ("{{ ('a\n' * 100000) | indent('b' * 100000) }}", MANY),
        ("{{ [1] | batch(3000000000, 1) | list }}", MANY),
        ("{{ ('a' * 100000) | replace('a', 'b' * 100000) }}", MANY),
        ("{{ (['a'] * 100000) | join('b' * 100000) }}", MANY),
        ("{{ 'a b c' | wordwrap(1, wrapstring='x' * 1040000) }}", LARGE),
        ("{{ ('a ' * 1000) | wordwrap(1, wrapstring='x' * 1000000) }}", MANY),
        ("{{ 5 | round(-1000000000) }}", "rounds to -1,000,000,000 digits; the limit is 400"),
        ("{{ 5.5 | round(1000000000, 'ceil') }}", "rounds to 1,000,000,000 digits"),
        ("{{ [1] | tojson(indent=1000000000) }}", MANY),
        ("{{ range(100000) | list | tojson(separators=('a' * 100000, ':')) }}", MANY),
        ("{{ ([[1]] * 3000) | sum(start=[]) }}", STEPS),
        ("{{ 'a'.center(3000000000) }}", MANY),
        ("{{ 'a'.ljust(3000000000) }}{{ 'a'.rjust(3) }}", MANY),
        ("{{ 'a'.encode().zfill(3000000000) }}", MANY),
        ("{{ '\t'.expandtabs(3000000000) }}", MANY),
        ("{{ ('a' * 100000).replace('', 'b' * 100000) }}", MANY),
        ("{{ ('b' * 100000).join(['a'] * 100000) }}", MANY),
        ("{{ ('a' * 100000).translate({97: 'b' * 100000}) }}", MANY),
        ("{{ (5).to_bytes(3000000000, 'big') }}", MANY),
        ("{{ (5).to_bytes(length=3000000000, byteorder='big') }}", MANY),
        (DOUBLE.replace("('x' * 100000,)", "'ab'").replace("DOUBLED", "ns.a ~ ns.a"), LARGE),
        (DOUBLE.replace("('x' * 100000,)", "'ab'").replace("DOUBLED", "ns.a + ns.a"), LARGE),
        (DOUBLE.replace("DOUBLED", "[ns.a, ns.a]"), LARGE),
        (DOUBLE.replace("DOUBLED", "(ns.a, ns.a)"), LARGE),
        (DOUBLE.replace("DOUBLED", "{1: ns.a, 2: ns.a}"), LARGE),
        (DOUBLE.replace("DOUBLED", "dict(a=ns.a, b=ns.a)"), LARGE),
        (DOUBLE.replace("DOUBLED", "cycler(ns.a, ns.a).items"), LARGE),
        (DOUBLE.replace("DOUBLED", "[ns.a] | batch(2, ns.a) | list"), LARGE),
        (NAMED + "{% for i in range(99) %}{% set n.a %}{{ n.a }}{{ n.a }}{% endset %}{% endfor %}", LARGE),
        ("{% for i in range(1000) %}{{ 'a' * 10000 }}{% endfor %}", LONG),
        ("{% macro m() %}{% for i in range(1000) %}{{ range(9999) | list }}{% endfor %}{% endmacro %}{{ m() }}", STEPS),
        ("{% set a = 'a' * 999999 %}{% for i in range(90) %}{% set b = a[1:] %}{% endfor %}", MANY),
        ("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", STEPS),
        ("{% for x in [1, 2] recursive %}{{ loop([1, 2]) if loop.depth < 60 }}{% endfor %}", STEPS),
        ("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}", STEPS),
        ("{% for i in range(100000) %}{% for j in range(100000) if j < 0 %}{% endfor %}{% endfor %}", STEPS),
        ("{% for i in range(9000) %}{% if 0 %}{% elif i" + " == i" * 999 + " %}{% endif %}{% endfor %}", STEPS),
        ("{% for i in range(9000) if 1 != i" + " == i" * 999 + " %}{% endfor %}", STEPS),
        ("{% for i in range(9000) %}{{ '' if i" + " == i" * 999 + " }}{% endfor %}", STEPS),
        ("{% for i in range(9000) %}{{ range(9000) | select('lt', 0) | first }}{% endfor %}", STEPS),
        ("{% for i in range(9000) %}{{ ('a' * 9000) | map('upper') | reject('in', 'A') | first }}{% endfor %}", STEPS),
        ("{% for i in range(9000) %}{{ range(9000) | min }}{{ range(9000) | unique | first }}{% endfor %}", STEPS),
        ("{% for i in range(9000) %}{{ (range(900) | sort(attribute='real')).x }}{% endfor %}", STEPS),
        ("{% for a in [1] | slice(10000000000) %}{{ loop.length }}{% endfor %}", STEPS),
        ("{{ lipsum(1000000000) }}", STEPS),
        ("{{ lipsum(1, max=1000000000) }}", STEPS),
        ("{{ [1] | slice(10000000000) | list }}", STEPS),
        ("{# " + "a" * 2**17 + " #}", "has 131,078 characters; the limit is 131,072"),
    ],
)  # fmt: skip
def test_a_template_ends_within_bounds_that_are_stated(
    template: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_bounds, "STEPS", 2**18)  # so that the test is quick
    with pytest.raises(ChatError) as caught:
        render(tokenizer(template), HELLO)

    assert says in caught.value.message


@pytest.mark.parametrize(
    ("template", "most"),
    [
        ("{% for i in range(60) %}{% set _ = [('a' * 999999)[1:], 'b' * i] %}{% endfor %}{{ 'c' * 9**9 }}", 16),
        (
            "{% set a = ['x' * 100000] %}{% macro m() %}{% for i in range(2000) %}{{ a }}{% endfor %}"
            "{% endmacro %}{{ m() }}",
            96,
        ),
    ],
)
def test_the_memory_of_a_template_is_bounded(template: str, most: int) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ChatError, match=MANY):
            render(tokenizer(template), HELLO)
        assert tracemalloc.get_traced_memory()[1] < most * 2**20
    finally:
        tracemalloc.stop()


def test_the_bounds_grow_with_the_messages() -> None:
    long: list[Message] = [{"role": "user", "content": "x" * 3_000_000}]

    assert len(render(tokenizer("{{ messages[0].content.strip() + '!' }}"), long)) == 3_000_001


@pytest.mark.parametrize(
    "template",
    [
        "{% set a = range(100000) | list %}{% for i in range(100000) %}{% if 'x' in a %}{% endif %}{% endfor %}",
        "{% set a = 'a' * 500000 %}{% for i in range(100000) %}{% if 'b' in a %}{% endif %}{% endfor %}",
    ],
)
def test_an_interrupt_ends_a_template_that_takes_its_time(template: str) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            render(tokenizer(template), HELLO)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_warning_of_the_compiler_is_not_shown(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(ChatError):
        render(tokenizer("{{ 1[2:] }}{{ 'a'() }}"), HELLO)
    assert not recwarn.list


def test_a_long_chat_is_within_bounds() -> None:
    """Templates that look at all messages for each are in use."""
    chat: list[Message] = [{"role": "user", "content": f"question {number}"} for number in range(200)]
    template = (
        "{% for m in messages %}{% set ns = namespace(last=0) %}{% for n in messages %}"
        "{% if n.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{{ ns.last }},{% endfor %}"
    )
    assert render(tokenizer(template), chat) == "199," * 200


def test_each_rendering_has_its_own_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_bounds, "STEPS", 2**10)
    found = tokenizer("{% for i in range(700) %}{% endfor %}{{ messages[0].content }}")

    assert [render(found, HELLO) for _ in range(3)] == ["hello"] * 3
    monkeypatch.setattr(template_bounds, "STEPS", 2**9)
    with pytest.raises(ChatError, match="takes more than 512 steps"):
        render(found, HELLO)


def test_a_template_is_compiled_once() -> None:
    found = tokenizer("{% if messages %}{{ messages[0].content }}{% endif %}" * 50)
    first, second = (bytecodes(lambda: render(found, HELLO)) for _ in range(2))

    assert second < first / 10


def test_rendering_sets_no_trace_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """One makes each line of Python several times as slow."""
    called: list[str] = []
    monkeypatch.setattr(sys, "settrace", lambda function: called.append("settrace"))
    monkeypatch.setattr(sys, "setprofile", lambda function: called.append("setprofile"))

    assert render(tokenizer("{{ messages[0].content }}"), HELLO) == "hello"
    assert not called


def test_a_trace_function_is_put_back() -> None:
    seen: list[str] = []
    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: seen.append(event))
    try:
        render(tokenizer("{{ 1 }}"), HELLO)
        put_back = sys.gettrace()
    finally:
        sys.settrace(before)

    assert put_back is not None
    assert seen


def test_what_the_assistant_says_may_be_marked() -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% else %}U:{{ m.content }}\n{% endif %}{% endfor %}A:"
    )
    answered: list[Message] = [*HELLO, {"role": "assistant", "content": "hi"}, *HELLO]

    assert render(tokenizer(template), HELLO) == "U:hello\nA:"
    assert render(tokenizer(template), answered) == "U:hello\nhiU:hello\nA:"


def test_what_is_set_in_a_marked_block_stays_there() -> None:
    template = "{% set a = 1 %}{% generation %}{% set a = 2 %}{{ a }}{% endgeneration %}{{ a }}"

    assert render(tokenizer(template), HELLO) == "21"


def test_loops_may_be_left_and_gone_on_with() -> None:
    template = (
        "{% for i in [1,2,3,4] %}{% if i == 2 %}{% continue %}{% endif %}"
        "{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    )

    assert render(tokenizer(template), HELLO) == "13"


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{% set a, b = (1, 2) %}{{ a }}{{ b }}{{ 'hello'[1:3] }}{{ [1, (2,), {'a': 1}] }}", "12el[1, (2,), {'a': 1}]"),
        ("{{ 'a' ~ 1 ~ none ~ nothing }}|{{ nothing }}|{{ 'a' + 'b' * 2 }}", "a1None||abb"),
        ("{% for k, v in {'a': 1} | items %}{{ k }}{{ v }}{% endfor %}{{ [3, 1, 2] | sort | join(',') }}", "a11,2,3"),
        ("{{ '{:>5}|{a}'.format('x', a=3) }}{{ '%05d' % 42 }}{{ '{a}'.format_map({'a': 1}) }}", "    x|3000421"),
        ("{{ '%s %s' | format('a', 2) }}{{ (1, 2, 3) | sum }}{{ [[1], [2]] | sum(start=[]) }}", "a 26[1, 2]"),
        ("{{ [{'a': 1}, {'a': 2}] | sum(attribute='a') }}{{ [{'a': 1}] | join('', 'a') }}", "31"),
        ("{{ 3.14159 | round(2) }}{{ 'abc' | upper | center(9) }}{{ 'a\nb' | indent(2) }}", "3.14   ABC   a\n  b"),
        ("{{ [1, 2, 3] | batch(2, 0) | list }}{{ 'a-b'.split('-') }}", "[[1, 2], [3, 0]]['a', 'b']"),
        ("{{ 2 ** 10 }}{{ 7 // 2 }}{{ 7 % 4 }}{{ 3 - 1 }}{{ 1 / 2 }}{{ 2 ** 0.5 > 1 }}", "1024332" + "0.5True"),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}{{ '-'.join(['a', 'b']) }}{{ 'aa'.replace('a', 'b', 1) }}",
         "[1,2]a-bba"),
        ("{% autoescape true %}{{ '<b>' ~ '<c>' | safe }}{{ ('<{}>' | safe).format('<x>') }}{% endautoescape %}",
         "&lt;b&gt;<c><&lt;x&gt;>"),
        ("{% macro m(a, b=2) %}{{ a }}{{ b }}{{ varargs }}{% endmacro %}{{ m(1) }}{{ m(1, 2, 3) }}", "12()12(3,)"),
        ("{% for i in [1] %}{% set a = 'x' %}{{ 'aba'.replace('a', a) }}{{ '-'.join([a, a]) }}{% endfor %}", "xbxx-x"),
        ("{% block b %}{% set a = 'x' %}{{ 'a'.center(3) }}{{ '{}'.format(a) }}{% endblock %}", " a x"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
    ],
)  # fmt: skip
def test_the_language_is_jinjas_own(template: str, wanted: str) -> None:
    assert render(tokenizer(template), HELLO) == wanted


def test_json_is_plain_as_in_transformers() -> None:
    template = "{{ messages | tojson }}|{{ {'b': '<é>', 'a': 1} | tojson(indent=1, sort_keys=true) }}"
    message: list[Message] = [{"role": "user", "content": "it's <b>&é"}]

    assert render(tokenizer(template), message) == (
        '[{"role": "user", "content": "it\'s <b>&é"}]|{\n "a": 1,\n "b": "<é>"\n}'
    )


def test_a_template_may_ask_for_the_date_and_for_tools() -> None:
    template = "{{ strftime_now('%Y') }}{{ 'none' if tools is none and documents is none }}"

    assert render(tokenizer(template), HELLO) == f"{datetime.now().year}none"


def test_the_beginning_is_the_templates_and_comes_once() -> None:
    ids = chat_prompt(bytes_tokenizer(bos=258, template="{{ bos_token }}{{ messages[0].content }}"), HELLO)

    assert ids.count(258) == 1
    assert ids[0] == 258


def test_a_template_knows_the_folders_tokens_by_name() -> None:
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    settings = tokenizer("{{ pad_token }}{{ unk_token }}{{ eos_token }}{{ bos_token }}{{ sep_token }}").settings
    found = Tokenizer(settings.model_copy(update={"special_tokens": names}), None)

    assert render(found, HELLO) == "<pad><unk></s><s>"


def test_a_template_that_makes_no_text_is_refused() -> None:
    with pytest.raises(NotText, match="an unpaired surrogate"):
        chat_prompt(bytes_tokenizer(template="{{ messages[0].content }}"), [{"role": "user", "content": "\ud800"}])


def test_the_bounds_in_the_guide_are_those_that_hold() -> None:
    page = (Path(__file__).parents[2] / "docs" / "chat.md").read_text()
    page = page[page.index("## What a template may do") :]
    bounds = (template.LARGEST_TEMPLATE, template_bounds.LARGEST, template_bounds.STEPS, template_bounds.INT_BITS)
    for bound in (*bounds, sandbox.MAX_RANGE):
        assert f"{bound:,}" in page
    assert f"{template_bounds.TOTAL} times that" in page
