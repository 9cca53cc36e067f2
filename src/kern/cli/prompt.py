"""Prompts from the command line, stdin, or token ids."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from kern.cli.errors import UsageError
from kern.text.chat import chat_prompt, first_turn
from kern.text.tokenizer import NoTokenizer, Tokenizer

STDIN = "-"
MAX_TEXT_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class PromptSource:
    """A prompt from the command line: text (`-` for stdin) or comma-separated ids."""

    text: str | None
    ids: str | None
    chat: bool
    system: str | None = None

    def resolve(self, tokenizer: Tokenizer) -> list[int]:
        """The ids of the prompt. Raises UsageError, ChatError, NoTokenizer and NotText."""
        if (self.text is None) == (self.ids is None):
            raise UsageError("give either --prompt or --prompt-ids", 'as in --prompt "Once upon a time"')
        if self.system is not None and not self.chat:
            raise UsageError("--system needs --chat", "add --chat, or leave --system out")
        if self.ids is not None:
            if self.chat:
                raise UsageError("--chat needs text, not ids", "use --prompt")
            return _ids(self.ids)
        assert self.text is not None
        if not tokenizer.has_vocabulary:
            raise NoTokenizer("this folder has no tokenizer", "give the prompt as token ids, with --prompt-ids 1,2,3")
        text = without_newline(read_text(STDIN)) if self.text == STDIN else self.text
        return chat_prompt(tokenizer, first_turn(self.system, text)) if self.chat else tokenizer.encode(text)


def _ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        raise UsageError(f"--prompt-ids {text!r} is not a list of ids", "write them as 1,2,3") from None


def without_newline(text: str) -> str:
    """`text` without a final newline, which `echo` and editors add."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def read_text(name: str) -> str:
    """The content of a text file, or of stdin for `-`. Raises UsageError if it is not text."""
    shown = "stdin" if name == STDIN else name
    try:
        data = _read(name)
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}", "give a text file, or - for stdin") from None
    if len(data) > MAX_TEXT_BYTES:
        raise UsageError(f"{shown} has more than {MAX_TEXT_BYTES:,} bytes, the limit", "give a shorter text")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown} is not UTF-8 at byte {error.start}", "give text in UTF-8") from None


def _read(name: str) -> bytes:
    if name != STDIN:
        with open(name, "rb") as file:
            return file.read(MAX_TEXT_BYTES + 1)
    if sys.stdin is None:
        raise UsageError("stdin is closed", "give the text in a file, or through a pipe")
    return sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
