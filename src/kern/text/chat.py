"""Chat messages as the prompt that a model's own template makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn, TypedDict

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


def chat_prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> str:
    """The prompt after which the assistant speaks. Raises ChatError.

    Templates are written for the environment of transformers (`chat_template_utils.py`): Jinja with block
    trimming and `raise_exception`. They come with a model, so they run in Jinja's sandbox.
    """
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    settings = tokenizer.settings
    if settings.chat_template is None:
        raise ChatError("this folder has no chat template", "give the prompt as it is, without --chat")
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    stop = settings.stop_ids[0] if settings.stop_ids else None
    names: dict[str, Any] = {
        "messages": list(messages),
        "add_generation_prompt": True,
        "bos_token": tokenizer.token(settings.bos),
        "eos_token": tokenizer.token(stop),
    }
    try:
        return environment.from_string(settings.chat_template).render(names)
    except TemplateError as error:
        raise ChatError(f"the folder's chat template fails: {error}") from error


def _refuse(reason: str) -> NoReturn:
    raise ChatError(f"the folder's chat template refuses these messages: {reason}")
