"""The toy of speculation with a tokenizer: a character for each id, so that its output is encoded to the same ids."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models

from kern.contracts.text import TEXT_FILE, TOKENIZER_FILE, TextSettings
from kern.runtime.executable import Executable
from kern.text import Tokenizer
from support.toy_speculation import POSITIONS, VOCABULARY, settings, write_toy

LETTERS: Final = [*map(chr, range(0x20, 0x7F)), "é", "ü"]
assert len(LETTERS) == VOCABULARY
TEMPLATE: Final = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}|{% endfor %}a:"


def tokenizer_json() -> str:
    """The library's own form."""
    library = Library(models.BPE(vocab={letter: id for id, letter in enumerate(LETTERS)}, merges=[]))
    library.decoder = decoders.Fuse()
    text: str = library.to_str()
    return text


def talking_settings(
    template: str | None = TEMPLATE, stop_ids: Sequence[int] = (), positions: int = POSITIONS
) -> TextSettings:
    """text.json of the toy with a tokenizer."""
    sha256 = hashlib.sha256(tokenizer_json().encode()).hexdigest()
    more = {"chat_template": template, "tokenizer_sha256": sha256}
    return settings(stop_ids, positions).model_copy(update=more)


def talker(template: str | None = TEMPLATE, stop_ids: Sequence[int] = (), positions: int = POSITIONS) -> Tokenizer:
    """The tokenizer, as if loaded."""
    return Tokenizer(talking_settings(template, stop_ids, positions), tokenizer_json())


def write_talker(folder: Path, spoilt: Iterable[int] = (), template: str | None = TEMPLATE) -> Path:
    """The toy's folder, with tokenizer and template."""
    write_toy(folder, spoilt)
    (folder / TOKENIZER_FILE).write_text(tokenizer_json())
    (folder / TEXT_FILE).write_text(talking_settings(template).model_dump_json())
    return folder


def ids_of(text: str) -> list[int]:
    """The ids of a text."""
    return [LETTERS.index(letter) for letter in text]


def text_of(ids: Iterable[int]) -> str:
    """The text of ids."""
    return "".join(LETTERS[id] for id in ids)


class Counting:
    """An executable that counts the tokens given to `prefill`, without padding; eager generators run through it."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self.prefilled = 0
        self.interrupt = False
        self._given = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executable, name)

    def write(self, name: str, array: Any, values: dict[str, int], **at: int) -> None:
        """Write, and note how many rows are of sequences."""
        self._executable.write(name, array, values, **at)
        if name == "cu_seqlens_q":
            self._given = int(array[-1])

    def run(self, program: str, values: dict[str, int]) -> None:
        """Run, or raise KeyboardInterrupt after the first call of `prefill`."""
        self._executable.run(program, values)
        if program == "prefill":
            self.prefilled += self._given
            if self.interrupt:
                self.interrupt = False
                raise KeyboardInterrupt
