"""tokenizer.json of a Hugging Face folder with the tokens added beside it, and what it puts around a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.config import shown
from kern.checkpoints.hf_tokens import Added
from kern.text.tokenizer_file import TokenizerError, TokenizerFile, with_tokens

_WAY_OUT = "correct the file, or take the publisher's"


@dataclass(frozen=True, slots=True)
class FolderTokenizer:
    """A tokenizer, its tokenizer.json, the token of the padding saved there, and the ids before and behind a text."""

    file: TokenizerFile
    content: bytes
    pad_token: str | None
    before: tuple[int, ...]
    behind: tuple[int, ...]


def folder_tokenizer(content: bytes, added: Sequence[Added], path: Path) -> FolderTokenizer:
    """Read `content`, the file at `path`, and add the tokens that it lacks. Raises CheckpointError."""
    try:
        file = TokenizerFile(content)
        pad_token, known = file.pad_token, file.added_tokens()
        changes = [change for token in added if (change := _change(token, known)) is not None]
        if changes:
            content = with_tokens(content, [(token.content, token.flags) for token in changes])
            file = TokenizerFile(content)
    except TokenizerError as error:
        raise CheckpointError(f"{path}: {error.message}", _WAY_OUT) from error
    for token in added:
        if token.id is not None and file.id(token.content) != token.id:
            raise CheckpointError(
                f"{path} gives {shown(token.content)} the id {file.id(token.content)}, the files next to it {token.id}",
                _WAY_OUT,
            )
    before, behind = _around(file.state("post_processor"), path)
    return FolderTokenizer(file, content, pad_token, before, behind)


def _change(token: Added, known: Mapping[str, Mapping[str, bool]]) -> Added | None:
    """The token with its flags, None where tokenizer.json has it so; one that becomes special keeps its other flags."""
    flags = known.get(token.content)
    if flags is None or token.overrides:
        return token
    if flags["special"] or not token.named:
        return None
    return replace(token, flags={**flags, "special": True})


def _around(processor: Any, path: Path) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that a post-processor puts before and behind one text."""
    match processor:
        case None | {"type": "ByteLevel"}:
            return (), ()
        case {"type": "BertProcessing" | "RobertaProcessing", "cls": [_, int(first)], "sep": [_, int(last)]}:
            return (first,), (last,)
        case {"type": "Sequence", "processors": list(processors)}:
            before: tuple[int, ...] = ()
            behind: tuple[int, ...] = ()
            for inner in processors:
                left, right = _around(inner, path)
                before, behind = left + before, behind + right
            return before, behind
        case {"type": "TemplateProcessing", "single": list(pieces), "special_tokens": dict(tokens)}:
            return _template(pieces, tokens, path)
    raise CheckpointError(f"{path} has the post-processor {shown(processor)}", "what it does to a text is unknown")


def _template(
    pieces: Sequence[Mapping[str, Any]], tokens: Mapping[str, Any], path: Path
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    texts = [place for place, piece in enumerate(pieces) if "Sequence" in piece]
    if len(texts) != 1:
        raise CheckpointError(f"{path} has a template with {len(texts)} texts in place of one", _WAY_OUT)
    names = [None if "Sequence" in piece else piece["SpecialToken"]["id"] for piece in pieces]
    unknown = [name for name in names if name is not None and name not in tokens]
    if unknown:
        raise CheckpointError(f"{path} has a template with the token {shown(unknown[0])}, which has no ids", _WAY_OUT)
    ids = [() if name is None else tuple(tokens[name]["ids"]) for name in names]
    return sum(ids[: texts[0]], ()), sum(ids[texts[0] :], ())
