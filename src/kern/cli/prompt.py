"""Where a prompt comes from: the command line, stdin, or token ids."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from kern.manifest.errors import KernError
from kern.text.chat import Message, chat_prompt
from kern.text.tokenizer import Tokenizer

STDIN = "-"


class UsageError(KernError):
    """Options that do not go together, or a value that is none."""

    code = "usage"
    exit_code = 2


@dataclass(frozen=True, slots=True)
class PromptSource:
    """A prompt as the command line gives it: text (`-` for stdin) or comma-separated ids."""

    text: str | None
    ids: str | None
    chat: bool

    def resolve(self, tokenizer: Tokenizer) -> list[int]:
        """The ids of the prompt. Raises UsageError, ChatError, NoTokenizer and NotText."""
        if (self.text is None) == (self.ids is None):
            raise UsageError("give either --prompt or --prompt-ids", 'as in --prompt "Once upon a time"')
        if self.ids is not None:
            if self.chat:
                raise UsageError("--chat puts text into the model's template, and ids are no text", "use --prompt")
            return _ids(self.ids)
        assert self.text is not None
        text = read_text(STDIN) if self.text == STDIN else self.text
        return chat_prompt(tokenizer, [Message(role="user", content=text)]) if self.chat else tokenizer.encode(text)


def _ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        raise UsageError(f"--prompt-ids {text!r} is no list of ids", "write them as 1,2,3") from None


def read_text(name: str) -> str:
    """A text file's content, or stdin's for `-`. Raises UsageError for what is no text."""
    try:
        data = sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}", "give a text file, or - for stdin") from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{'stdin' if name == STDIN else name} is not UTF-8 at byte {error.start}", "give text in UTF-8"
        ) from None
