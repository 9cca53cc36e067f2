"""Chat templates: rendered as transformers would, and kept in their sandbox."""

from __future__ import annotations

import pytest

from kern.text import Tokenizer, chat_prompt
from kern.text.chat import ChatError, Message
from kern.text.contract import DecodeBytes, TextSettings

HELLO: list[Message] = [{"role": "user", "content": "hello"}]


def tokenizer(template: str | None) -> Tokenizer:
    bytes_read = DecodeBytes(fixed=1, per_context_token=1)
    settings = TextSettings(
        vocabulary=3, stop_ids=(), bos=None, chat_template=template, tokenizer_sha256=None, decode_bytes=bytes_read
    )
    return Tokenizer(settings, None)


def test_blocks_leave_no_lines_of_their_own() -> None:
    template = "{% for m in messages %}\n  {% if m.role == 'user' %}\n<{{ m.content }}>\n  {% endif %}\n{% endfor %}\n"

    assert chat_prompt(tokenizer(template), HELLO) == "<hello>\n"


def test_the_assistant_is_given_the_word() -> None:
    template = "{{ messages[0]['content'] }}{% if add_generation_prompt %}|assistant{% endif %}"

    assert chat_prompt(tokenizer(template), HELLO) == "hello|assistant"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (None, "no chat template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% for %}", "fails"),
        ("{{ messages[3].content }}", "fails"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "fails"),
    ],
)
def test_what_cannot_be_rendered_is_refused(template: str | None, says: str) -> None:
    with pytest.raises(ChatError, match=says):
        chat_prompt(tokenizer(template), HELLO)
