"""The tokens that a Hugging Face folder names or adds beside its tokenizer.json, as transformers reads them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kern.models.checkpoint import CheckpointError
from kern.models.config import shown
from kern.models.folder_files import read_file, read_json

NAMES: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The names that chat templates know (transformers, `SPECIAL_TOKENS_ATTRIBUTES`)."""
_FLAGS: Final = ("single_word", "lstrip", "rstrip", "normalized", "special")


@dataclass(frozen=True, slots=True)
class Added:
    """A token to be added, and the id that a file gives it, None where none does.

    With `overrides`, its flags count more than those that tokenizer.json gives the same token.
    """

    content: str
    id: int | None
    flags: Mapping[str, bool]
    overrides: bool = False


@dataclass(frozen=True, slots=True)
class FolderTokens:
    """`named` are the texts of named tokens, by name."""

    named: Mapping[str, str]
    added: tuple[Added, ...]


def folder_tokens(folder: Path, settings: Mapping[str, Any]) -> FolderTokens:
    """Read them from `settings`, the folder's tokenizer_config.json, and from the files that preceded its fields.

    special_tokens_map.json and added_tokens.json count where there is no `added_tokens_decoder`. Raises
    CheckpointError.
    """
    path = folder / "tokenizer_config.json"
    where = dict.fromkeys(NAMES, path)
    named = {name: settings[name] for name in NAMES if name in settings}
    decoder = settings.get("added_tokens_decoder")
    if decoder is None:
        older = folder / "special_tokens_map.json"
        found = optional_settings(older)
        named |= {name: found[name] for name in NAMES if name in found}
        where |= {name: older for name in NAMES if name in found}
    texts = {name: _text(value, name, where[name]) for name, value in named.items() if value is not None}
    added = _legacy(folder, frozenset(texts.values())) if decoder is None else _decoder(decoder, path)
    # What is named is special, and is added where it has not been.
    listed = (*added, *(_named(named[name], texts[name]) for name in texts))
    first = {token.content: token for token in reversed(listed)}
    special = frozenset(texts.values())
    return FolderTokens(texts, tuple(_special(token, special) for token in listed if first[token.content] is token))


def _special(token: Added, special: frozenset[str]) -> Added:
    return replace(token, flags={**token.flags, "special": True}) if token.content in special else token


def optional_settings(path: Path) -> dict[str, Any]:
    """A file of settings; none where there is no such file. Raises CheckpointError."""
    content = read_file(path)
    return {} if content is None else read_json(path, content)


def spelled(text: str, name: str, path: Path) -> str:
    """`text`, unless no UTF-8 spells it. Raises CheckpointError."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(
            f"{path}: {name} has half a character at {error.start}", "write it as the publisher has it"
        ) from None
    return text


def _text(value: Any, name: str, path: Path) -> str:
    """The text of a token: itself, or the content of an object with flags."""
    text = value.get("content") if isinstance(value, dict) else value
    if not isinstance(text, str) or not text:
        raise CheckpointError(f"{path}: {name} is {shown(value)}, neither a token nor an object with its content")
    return spelled(text, name, path)


def _named(value: Any, text: str) -> Added:
    flags = {name: value[name] for name in _FLAGS if value.get(name) is not None} if isinstance(value, dict) else {}
    return Added(text, None, flags | {"special": True})


def _decoder(decoder: Any, path: Path) -> tuple[Added, ...]:
    """`added_tokens_decoder`: tokens with their flags, by id."""
    if not isinstance(decoder, dict) or not all(key.isascii() and key.isdecimal() for key in decoder):
        raise CheckpointError(f"{path}: added_tokens_decoder is not an object from ids to tokens")
    return tuple(_decoded(decoder, path))


def _decoded(decoder: Mapping[str, Any], path: Path) -> Iterator[Added]:
    for key in sorted(decoder, key=int):
        name, value = f"added_tokens_decoder.{key}", decoder[key]
        text = _text(value, name, path)
        flags = {flag: value[flag] for flag in _FLAGS if flag in value} if isinstance(value, dict) else {}
        if not all(isinstance(flag, bool) for flag in flags.values()):
            raise CheckpointError(f"{path}: {name} is {shown(value)}; its flags are not all true or false")
        yield Added(text, int(key), flags, overrides=True)


def _legacy(folder: Path, special: frozenset[str]) -> tuple[Added, ...]:
    """added_tokens.json: ids by token; those that are also named are special."""
    path = folder / "added_tokens.json"
    found = optional_settings(path)
    for token, id in found.items():
        if isinstance(id, bool) or not isinstance(id, int):
            raise CheckpointError(f"{path} gives {shown(token)} the id {shown(id)}")
        spelled(token, "a token", path)
    return tuple(
        Added(token, id, {"special": token in special, "normalized": token not in special})
        for token, id in sorted(found.items(), key=lambda entry: entry[1])
        if token
    )
