"""Text to token ids and back, with the folder's tokenizer.json."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from pydantic import BaseModel, ValidationError

from kern.artifact.errors import FileMissing
from kern.artifact.folder import ArtifactFolder, open_folder
from kern.contracts.text import TEXT_FILE, TEXT_VERSION, TOKENIZER_FILE, ContractError, TextSettings, first_error
from kern.manifest.errors import KernError, variant
from kern.text.tokenizer_file import TokenizerError, TokenizerFile

NoTokenizer = variant(KernError, "no-tokenizer", "Text is given, but the folder has no tokenizer.", exit_code=2)
NotText = variant(KernError, "not-text", "The string cannot be encoded as UTF-8.", exit_code=2)


class Tokenizer:
    """The text side of a folder: its settings and, where it has one, its tokenizer."""

    def __init__(self, settings: TextSettings, tokenizer_json: str | None) -> None:
        """`tokenizer_json` is the text of tokenizer.json. Raises ContractError if it is invalid."""
        self.settings = settings
        self._tokenizer = None if tokenizer_json is None else _read(tokenizer_json)

    @classmethod
    def load(cls, path: str | Path | ArtifactFolder) -> Tokenizer:
        """Read text.json and tokenizer.json of the folder at `path`; an open folder stays open.

        Raises ContractError if text.json is missing, either file is invalid, or tokenizer.json has another hash than in
        text.json; ArtifactError if a file cannot be read.
        """
        with nullcontext(path) if isinstance(path, ArtifactFolder) else open_folder(path) as folder:
            settings = _settings(_text_file(folder), folder.path / TEXT_FILE)
            content = None if settings.tokenizer_sha256 is None else folder.read_text(TOKENIZER_FILE)
        if content is not None and hashlib.sha256(content.encode()).hexdigest() != settings.tokenizer_sha256:
            raise ContractError(
                f"{folder.path / TOKENIZER_FILE} does not have the hash in {TEXT_FILE}", "build the folder again"
            )
        return cls(settings, content)

    @property
    def has_vocabulary(self) -> bool:
        """Whether ids can be turned into text."""
        return self._tokenizer is not None

    def encode(self, text: str) -> list[int]:
        """The ids of a prompt, after the model's begin token if any. Raises NoTokenizer, NotText and TokenizerError."""
        bos = [] if self.settings.bos is None else [self.settings.bos]
        return bos + self.encode_exactly(text)

    def encode_exactly(self, text: str) -> list[int]:
        """The ids of `text` with nothing added. Raises NoTokenizer, NotText and TokenizerError."""
        if self._tokenizer is None:
            raise NoTokenizer("this folder has no tokenizer", "give token ids in place of text")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise NotText(f"the text has an unpaired surrogate at index {error.start}", "give text in UTF-8") from None
        return self._tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids` without special tokens; empty if the folder has no tokenizer.

        Raises TokenizerError.
        """
        return "" if self._tokenizer is None else self._tokenizer.decode(ids)


class TextStream:
    """The text of ids that arrive one by one, in complete characters.

    A character may be split across several tokens. So the last few ids are decoded with and without the new ones, and
    the difference is returned once it does not end in an incomplete character. The ids before provide context: some
    decoders drop a space at the beginning of a text, and nowhere else.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        """`before` are the ids of the prompt; their text is not returned."""
        self._tokenizer = tokenizer
        self._ids = _context(tokenizer, before)
        self._given = len(self._ids)

    def add(self, id: int) -> str:
        """The text that `id` completes, which may be empty."""
        self._ids.append(id)
        text = self._pending()
        if not text or text.endswith("\ufffd"):
            return ""
        self._forget()
        return text

    def finish(self) -> str:
        """The remaining text at the end; an incomplete character becomes U+FFFD."""
        text = self._pending()
        self._forget()
        return text

    def _pending(self) -> str:
        before = self._tokenizer.decode(self._ids[: self._given])
        return self._tokenizer.decode(self._ids)[len(before) :]

    def _forget(self) -> None:
        """Keep only the ids returned last, as context for the next ones (a leading space)."""
        self._ids = self._ids[self._given :]
        self._given = len(self._ids)


def _context(tokenizer: Tokenizer, before: Sequence[int]) -> list[int]:
    """The last ids that have a text, or all of them if none has; no ids if the last character is incomplete.

    A character has at most four tokens, so eight always include some of the character before.
    """
    count = 1
    while count < 2 * len(before):
        ids = list(before[-count:])
        text = tokenizer.decode(ids)
        if text and not text.endswith("\ufffd"):
            return ids
        if text and count >= 8:
            return []
        count *= 2
    return [] if tokenizer.decode(before) else list(before)


def _read(tokenizer_json: str) -> TokenizerFile:
    try:
        return TokenizerFile(tokenizer_json)
    except TokenizerError as error:
        raise ContractError(error.message, "build the folder again") from error


def _text_file(folder: ArtifactFolder) -> str:
    try:
        return folder.read_text(TEXT_FILE)
    except FileMissing:
        raise ContractError(
            f"{folder.path} is not a text model: it has no {TEXT_FILE}",
            "run one of its programs with `kern call`, or from Python with kern.load",
        ) from None


class _Version(BaseModel):
    """The version of a text.json; the first one did not have the field."""

    version: int = 1


def _settings(content: str, path: Path) -> TextSettings:
    try:
        version = _Version.model_validate_json(content).version
        if version != TEXT_VERSION:
            age = "an older" if version < TEXT_VERSION else "a newer"
            raise ContractError(
                f"{path} has version {version}, not {TEXT_VERSION}: {age} kern built this folder",
                "build it again, with `kern build … --force`",
            )
        return TextSettings.model_validate_json(content)
    except ValidationError as error:
        raise ContractError(f"{path}: {first_error(error)}", "build the folder again") from error
