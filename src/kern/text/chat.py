"""Chat messages as the prompt that a model's own template makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, Final, NoReturn, TypedDict

from kern.manifest.errors import KernError
from kern.text.tokenizer import Tokenizer


class ChatError(KernError):
    """A folder without a chat template, or messages that its template refuses."""

    code: ClassVar[str] = "chat"
    exit_code: ClassVar[int] = 2


class Message(TypedDict):
    """One turn: `role` is system, user or assistant."""

    role: str
    content: str


_FAULTS: Final = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
"""What an expression of a template may raise beside Jinja's own errors."""


def chat_prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """The ids after which the assistant speaks; the template itself puts the model's beginning there.

    Raises ChatError, NoTokenizer and NotText.
    """
    return tokenizer.encode_exactly(render(tokenizer, messages))


def render(tokenizer: Tokenizer, messages: Sequence[Message]) -> str:
    """The text of a chat, up to where the assistant speaks. Raises ChatError.

    Templates are written for the environment of transformers (`chat_template_utils.py`): Jinja with block
    trimming, `raise_exception`, `strftime_now`, and a `tojson` that escapes nothing for HTML. They come with a
    model, so they run in Jinja's sandbox.
    """
    from jinja2 import TemplateError

    settings = tokenizer.settings
    if settings.chat_template is None:
        raise ChatError("this folder has no chat template", "give the prompt as it is, without --chat")
    names: dict[str, Any] = {
        **settings.special_tokens,
        "messages": list(messages),
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
    }
    try:
        text: str = _environment().from_string(settings.chat_template).render(names)
    except (TemplateError, *_FAULTS) as error:
        raise ChatError(f"the folder's chat template fails: {error}") from error
    return text


def _environment() -> Any:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(reason: str) -> NoReturn:
    raise ChatError(f"the folder's chat template refuses these messages: {reason}")
