"""Text to token ids and back: tokenizers and chat templates."""

from kern.text.chat import chat_prompt
from kern.text.tokenizer import Tokenizer

__all__ = ["Tokenizer", "chat_prompt"]
