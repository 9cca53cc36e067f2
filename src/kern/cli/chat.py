"""`kern chat`: a conversation, one line per turn."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from kern.cli.errors import UsageError
from kern.cli.interrupts import heeded
from kern.cli.loading import LoadOptions, loaded_model, report
from kern.cli.prompt import MAX_TEXT_BYTES, without_newline
from kern.cli.streaming import stream
from kern.engine.conversation import Conversation
from kern.engine.generator import Generator
from kern.engine.stop_strings import check_stops
from kern.text.chat import chat_prompt, first_turn
from kern.text.tokenizer import NoTokenizer, Tokenizer

_PROMPT = "> "


def chat(
    path: Path,
    options: LoadOptions,
    system: str | None,
    *,
    max_tokens: int,
    stop: Sequence[str],
    spec: bool,
) -> None:
    """Answer each line of the user until the end of input. Raises PromptError once the capacity is full."""

    def prepare(tokenizer: Tokenizer) -> None:
        if not tokenizer.has_vocabulary:
            help = "run it with token ids, `kern run DIR --prompt-ids 1,2,3`"
            raise NoTokenizer("this folder has no tokenizer", help)
        check_stops(stop, tokenizer)
        chat_prompt(tokenizer, first_turn(system, "hello"))  # so that a template that fails is reported before loading

    with loaded_model(path, options, prepare) as (model, _, seconds):
        generator = model.generator(spec=spec)
        report(model.executable, seconds, options, generator.graphs)
        conversation = Conversation(generator, system)
        for text in _lines():
            if text.strip():
                _answer(conversation, generator, text, max_tokens, stop, options.quiet)


def _answer(
    conversation: Conversation, generator: Generator, text: str, max_tokens: int, stop: Sequence[str], quiet: bool
) -> None:
    """Print one answer as it comes. Ctrl-C ends it; the conversation keeps its text so far."""
    answer = conversation.say(text, max_tokens=max_tokens, stop=stop)
    try:
        stream(answer, generator, quiet=quiet)
    except KeyboardInterrupt:
        heeded()


def _lines() -> Iterator[str]:
    """The user's lines: from a prompt on a terminal, until Ctrl-D or Ctrl-C; or from a pipe."""
    if sys.stdin is None:
        raise UsageError("stdin is closed", "run it on a terminal, or give one line per turn through a pipe")
    if sys.stdin.isatty() and sys.stdout.isatty():
        yield from _asked()
        return
    while data := sys.stdin.buffer.readline(MAX_TEXT_BYTES + 1):
        if len(data) > MAX_TEXT_BYTES:
            raise UsageError(f"a line has more than {MAX_TEXT_BYTES:,} bytes, the limit", "give a shorter one")
        try:
            yield without_newline(data.decode())
        except UnicodeDecodeError as error:
            raise UsageError(f"stdin is not UTF-8 at byte {error.start} of a line", "give text in UTF-8") from None


def _asked() -> Iterator[str]:
    if find_spec("readline") is not None:
        import readline  # noqa: F401, it adds line editing and a history to `input`
    while True:
        try:
            text = input(_PROMPT)
        except (EOFError, KeyboardInterrupt):
            print()
            return
        yield text
