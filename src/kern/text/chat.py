"""Chat messages as the prompt that a model's own template makes of them."""

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
    """What comes before the first turn: a system message, if there is one."""
    return [] if system is None else [Message(role="system", content=system)]


def first_turn(system: str | None, text: str) -> list[Message]:
    """The messages of a first turn."""
    return [*opening(system), Message(role="user", content=text)]


def chat_prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """The ids after which the assistant speaks; the template itself puts the model's beginning there.

    Raises ChatError, NoTokenizer and NotText.
    """
    return tokenizer.encode_exactly(render(tokenizer, messages))


def render(tokenizer: Tokenizer, messages: Sequence[Message]) -> str:
    """The text of a chat, up to where the assistant speaks. Raises ChatError."""
    from kern.text.template import rendered

    settings = tokenizer.settings
    if settings.chat_template is None:
        raise ChatError("this folder has no chat template", "give a prompt as it is: `kern run` without --chat")
    names: dict[str, Any] = {
        **settings.special_tokens,
        "messages": list(messages),
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
    }
    return rendered(settings.chat_template, names)
