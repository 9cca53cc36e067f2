"""The tokenizer of a Hugging Face folder: tokenizer.json, tokens that other files add, and what surrounds a text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.config import shown
from kern.checkpoints.folder_files import read_file, read_json
from kern.text.tokenizer_file import FLAGS, TokenizerError, TokenizerFile, with_tokens

NAMES: Final = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The names that chat templates know (transformers, `SPECIAL_TOKENS_ATTRIBUTES`)."""
_NAME: Final = re.compile("[a-z_]+_token")
_ID: Final = re.compile("[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Added:
    """A token to be added, and its id if a file gives it one.

    With `overrides`, its flags replace those in tokenizer.json. A `named` token is special, whatever tokenizer.json
    says.
    """

    content: str
    id: int | None
    flags: Mapping[str, bool]
    overrides: bool = False
    named: bool = False


@dataclass(frozen=True, slots=True)
class FolderTokens:
    """`named` are the texts of named tokens, by name."""

    named: Mapping[str, str]
    added: tuple[Added, ...]


def folder_tokens(folder: Path, settings: Mapping[str, Any]) -> FolderTokens:
    """Read them from `settings`, the folder's tokenizer_config.json, and from the older files.

    special_tokens_map.json and added_tokens.json are read if there is no `added_tokens_decoder`. Raises
    CheckpointError.
    """
    path, older_path = folder / "tokenizer_config.json", folder / "special_tokens_map.json"
    decoder = settings.get("added_tokens_decoder")
    older = optional_settings(older_path) if decoder is None else {}
    more = _further(settings, path) or _further(older, older_path)
    found = {**_named(settings, path), **_named(older, older_path)}
    standard = {name: found[name] for name in NAMES if name in found}  # ids are assigned in this order
    named = standard | found | {name: each for name, each in more if name}
    texts = {name: token.content for name, token in named.items()}
    special = frozenset(texts.values())
    further = [each for _, each in more]
    added = _decoder(decoder, path) if decoder is not None else _legacy(folder, special | {t.content for t in further})
    # Named tokens are special, and are added if they are missing.
    listed = (*added, *named.values(), *further)
    first = {token.content: token for token in reversed(listed)}
    return FolderTokens(texts, tuple(_special(token, special) for token in listed if first[token.content] is token))


def _special(token: Added, special: frozenset[str]) -> Added:
    return replace(token, flags={**token.flags, "special": True}, named=True) if token.content in special else token


def optional_settings(path: Path) -> dict[str, Any]:
    """A file of settings; empty if it does not exist. Raises CheckpointError."""
    content = read_file(path)
    return {} if content is None else read_json(path, content)


def spelled(text: str, name: str, path: Path) -> str:
    """`text`, if it can be encoded as UTF-8. Raises CheckpointError."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CheckpointError(f"{path}: {name} has an unpaired surrogate at {error.start}") from None
    return text


def _text(value: Any, name: str, path: Path) -> str:
    """The text of a token: itself, or the content of an object with flags."""
    text = value.get("content") if isinstance(value, dict) else value
    if not isinstance(text, str) or not text:
        raise CheckpointError(f"{path}: {name} is {shown(value)}, neither a token nor an object with `content`")
    return spelled(text, name, path)


def _token(value: Any, name: str, path: Path, id: int | None = None, **flags: bool) -> Added:
    """A token: a string, or an object with its content and flags."""
    given = {flag: value[flag] for flag in FLAGS if flag in value} if isinstance(value, dict) else {}
    if not all(isinstance(flag, bool) for flag in given.values()):
        raise CheckpointError(f"{path}: {name} is {shown(value)}; its flags must be true or false")
    return Added(_text(value, name, path), id, given | flags, overrides=id is not None)


def _named(settings: Mapping[str, Any], path: Path) -> dict[str, Added]:
    """The tokens with a name: NAMES, and any other `…_token` that is a token."""
    return {
        name: _token(value, name, path, special=True)
        for name, value in settings.items()
        if (name in NAMES and value is not None) or (_NAME.fullmatch(name) and isinstance(value, str | dict))
    }


def _further(settings: Mapping[str, Any], path: Path) -> list[tuple[str, Added]]:
    """Further special tokens, with a name if a template can refer to them.

    A list in `extra_special_tokens` replaces the older field; an object adds to it.
    """
    extra, older = "extra_special_tokens", "additional_special_tokens"
    names = [extra] if settings.get(extra) and not isinstance(settings[extra], dict) else [extra, older]
    return [token for name in names for token in _listed(settings.get(name) or [], name, path)]


def _listed(found: Any, name: str, path: Path) -> list[tuple[str, Added]]:
    if not isinstance(found, list | dict):
        raise CheckpointError(f"{path}: {name} is {shown(found)}, neither a list of tokens nor an object")
    pairs = found.items() if isinstance(found, dict) else (("", value) for value in found)
    return [(key if _NAME.fullmatch(key) else "", _token(value, name, path, special=True)) for key, value in pairs]


def _decoder(decoder: Any, path: Path) -> tuple[Added, ...]:
    """`added_tokens_decoder`: tokens with their flags, by id."""
    if not isinstance(decoder, dict) or not all(_ID.fullmatch(key) for key in decoder):
        raise CheckpointError(f"{path}: added_tokens_decoder is not an object of tokens by id")
    ids = sorted(decoder, key=int)
    return tuple(_token(decoder[id], f"added_tokens_decoder.{id}", path, id=int(id)) for id in ids)


def _legacy(folder: Path, special: frozenset[str]) -> tuple[Added, ...]:
    """added_tokens.json: ids by token; those of `special` are special."""
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


@dataclass(frozen=True, slots=True)
class FolderTokenizer:
    """A tokenizer, its tokenizer.json, the padding token saved there, and the ids before and after a text."""

    file: TokenizerFile
    content: bytes
    pad_token: str | None
    before: tuple[int, ...]
    after: tuple[int, ...]


def folder_tokenizer(content: bytes, added: Sequence[Added], path: Path) -> FolderTokenizer:
    """Read `content`, the file at `path`, and add missing tokens. Raises CheckpointError."""
    try:
        file = TokenizerFile(content)
        pad_token, known = file.pad_token, file.added_tokens()
        changes = [change for token in added if (change := _change(token, known)) is not None]
        if changes:
            content = with_tokens(content, [(token.content, token.flags) for token in changes])
            file = TokenizerFile(content)
    except TokenizerError as error:
        raise CheckpointError(f"{path}: {error.message}") from error
    for token in added:
        if token.id is not None and file.id(token.content) != token.id:
            raise CheckpointError(
                f"{path} gives {shown(token.content)} the id {file.id(token.content)}; other files say {token.id}",
            )
    before, after = _around(file.state("post_processor"), path)
    return FolderTokenizer(file, content, pad_token, before, after)


def _change(token: Added, known: Mapping[str, Mapping[str, bool]]) -> Added | None:
    """The token with its flags, None if tokenizer.json agrees. One that becomes special keeps its other flags."""
    flags = known.get(token.content)
    if flags is None or token.overrides:
        return token
    if flags["special"] or not token.named:
        return None
    return replace(token, flags={**flags, "special": True})


def _around(processor: Any, path: Path) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that a post-processor puts before and after one text."""
    match processor:
        case None | {"type": "ByteLevel"}:
            return (), ()
        case {"type": "BertProcessing" | "RobertaProcessing", "cls": [_, int(first)], "sep": [_, int(last)]}:
            return (first,), (last,)
        case {"type": "Sequence", "processors": list(processors)}:
            before: tuple[int, ...] = ()
            after: tuple[int, ...] = ()
            for inner in processors:
                left, right = _around(inner, path)
                before, after = left + before, after + right
            return before, after
        case {"type": "TemplateProcessing", "single": list(pieces), "special_tokens": dict(tokens)}:
            return _template(pieces, tokens, path)
    raise CheckpointError(f"{path} has the unknown post-processor {shown(processor)}")


def _template(
    pieces: Sequence[Mapping[str, Any]], tokens: Mapping[str, Any], path: Path
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    texts = [index for index, piece in enumerate(pieces) if "Sequence" in piece]
    if len(texts) != 1:
        raise CheckpointError(f"{path} has a post-processor template with {len(texts)} texts instead of one")
    names = [None if "Sequence" in piece else piece["SpecialToken"]["id"] for piece in pieces]
    unknown = [name for name in names if name is not None and name not in tokens]
    if unknown:
        raise CheckpointError(f"{path} has a post-processor template with the unknown token {shown(unknown[0])}")
    ids = [() if name is None else tuple(tokens[name]["ids"]) for name in names]
    return sum(ids[: texts[0]], ()), sum(ids[texts[0] :], ())
