"""A caller of executables that knows tokens: text in, text out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kern.text.chat import chat_prompt as chat_prompt
    from kern.text.conversation import Conversation as Conversation
    from kern.text.generator import Generation as Generation
    from kern.text.generator import Generator as Generator
    from kern.text.generator import Token as Token
    from kern.text.scoring import Score as Score
    from kern.text.scoring import score as score
    from kern.text.tokenizer import Tokenizer as Tokenizer

_HOMES = {
    "Conversation": "conversation",
    "Generation": "generator",
    "Generator": "generator",
    "Score": "scoring",
    "Token": "generator",
    "Tokenizer": "tokenizer",
    "chat_prompt": "chat",
    "score": "scoring",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: providers need the contract alone, not the runtime."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
