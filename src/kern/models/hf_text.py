"""The text side of a Hugging Face folder: tokenizer, stop ids, the model's beginning, chat template."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kern.models.checkpoint import CheckpointError, TextSource
from kern.models.config import shown
from kern.models.folder_files import read_file, read_json


def text_of_folder(folder: Path, config: Mapping[str, Any]) -> TextSource:
    """Tokenizer, stop ids and chat template, as far as `folder` has them; `config` is its config.json.

    Raises CheckpointError.
    """
    tokenizer = folder / "tokenizer.json"
    content = read_file(tokenizer)
    if content is None:
        return TextSource(stop_ids=_stop_ids(folder, config))
    return TextSource(content, _stop_ids(folder, config), _bos(content, tokenizer), _chat_template(folder))


def _settings(path: Path) -> dict[str, Any]:
    """A file of settings; none where there is no such file."""
    content = read_file(path)
    return {} if content is None else read_json(path, content)


def _stop_ids(folder: Path, config: Mapping[str, Any]) -> tuple[int, ...]:
    """generation_config.json holds all of them, config.json often one only."""
    stop = ({**config} | _settings(folder / "generation_config.json")).get("eos_token_id")
    ids = stop if isinstance(stop, list) else [] if stop is None else [stop]
    if not all(isinstance(id, int) and not isinstance(id, bool) for id in ids):
        raise CheckpointError(f"eos_token_id in {folder} is {shown(stop)}, neither an id nor a list of ids")
    return tuple(ids)


def _chat_template(folder: Path) -> str | None:
    path = folder / "chat_template.jinja"
    content = read_file(path)
    if content is None:
        path = folder / "tokenizer_config.json"
        return _default_template(_settings(path).get("chat_template"), path)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 at byte {error.start}") from error


def _default_template(found: Any, path: Path) -> str | None:
    """The template itself, or the one called `default` of several."""
    if isinstance(found, list) and all(_is_named_template(entry) for entry in found):
        return next((entry["template"] for entry in found if entry["name"] == "default"), None)
    if found is not None and not isinstance(found, str):
        raise CheckpointError(f"{path}: chat_template is {shown(found)}, neither a text nor a list of named ones")
    return found


def _is_named_template(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str)


def _bos(tokenizer_json: bytes, path: Path) -> int | None:
    """The id that this tokenizer puts before every text: what stands before the ids of one that are its own."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(tokenizer_json)
    except ValueError as error:
        raise CheckpointError(f"{path} is no tokenizer of the tokenizers library: {error}") from error
    whole: list[int] = tokenizer.encode("a").ids
    own: list[int] = tokenizer.encode("a", add_special_tokens=False).ids
    before = next(start for start in range(len(whole) + 1) if whole[start : start + len(own)] == own)
    if before > 1:
        raise CheckpointError(f"{path} puts {before} ids before a text", "one at most is provided for")
    return whole[0] if before else None
