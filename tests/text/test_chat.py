"""Chat templates: rendered as transformers would, and kept in their sandbox."""

from __future__ import annotations

from datetime import datetime

import pytest

from kern.text import Tokenizer, chat_prompt
from kern.text.chat import ChatError, Message, render
from kern.text.contract import DecodeBytes, TextSettings
from kern.text.tokenizer import NotText
from support.tokenizers import bytes_tokenizer

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
        (None, "no chat template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for %}", "fails"),
        ("{{ messages[3].content }}", "fails"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "fails"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages[0].content + 1 }}", "fails"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "fails"),
        ("{{ 'a'.foo() }}", "fails"),
        ("{% include 'other' %}", "fails"),
        ("{{ namespace(a=1).b.c }}", "fails"),
        ("{{ [].pop() }}", "fails"),
        ("{{ '%d' % 'x' }}", "fails"),
        ("{{ messages | tojson(indent=messages) }}", "fails"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "fails"),
    ],
)
def test_what_cannot_be_rendered_is_refused(template: str | None, says: str) -> None:
    with pytest.raises(ChatError, match=says):
        render(tokenizer(template), HELLO)


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
    with pytest.raises(NotText, match="half a character"):
        chat_prompt(bytes_tokenizer(template="{{ messages[0].content }}"), [{"role": "user", "content": "\ud800"}])
