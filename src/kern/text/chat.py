"""Chat messages to a prompt, with the model's own chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from kern.text.template_bounds import ChatError
from kern.text.tokenizer import Tokenizer


class Message(TypedDict):
    """One turn: `role` is system, user or assistant."""

    role: str
    content: str


def opening(system: str | None) -> list[Message]:
    """The messages before the first turn: the system message, if there is one."""
    return [] if system is None else [Message(role="system", content=system)]


def first_turn(system: str | None, text: str) -> list[Message]:
    """The messages of a first turn."""
    return [*opening(system), Message(role="user", content=text)]


def chat_prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """The ids after which the assistant answers. The template itself adds the model's begin token.

    Raises ChatError, NoTokenizer and NotText.
    """
    return tokenizer.encode_exactly(render(tokenizer, messages))


def render(tokenizer: Tokenizer, messages: Sequence[Message]) -> str:
    """The text of a chat, up to the beginning of the assistant's answer. Raises ChatError."""
    from kern.text.template import rendered

    settings = tokenizer.settings
    if settings.chat_template is None:
        raise ChatError("this folder has no chat template", "use `kern run` without --chat")
    names: dict[str, Any] = {
        **settings.special_tokens,
        "messages": list(messages),
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
    }
    return rendered(settings.chat_template, names)
