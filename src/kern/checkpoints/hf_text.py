"""Tokenizer, stop ids, BOS and chat template of a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kern.checkpoints.checkpoint import CheckpointError, TextSource
from kern.checkpoints.config import shown
from kern.checkpoints.fields import check_fields, unknown_fields
from kern.checkpoints.folder_files import read_file
from kern.checkpoints.hf_fields import GENERATION_FIELDS
from kern.checkpoints.hf_tokenizer import FolderTokenizer, folder_tokenizer, folder_tokens, optional_settings, spelled

_CONFIG: Final = "tokenizer_config.json"
_GENERATION: Final = "generation_config.json"
_AGREE: Final = "make the two files agree: versions of transformers differ in which one they use"


def text_of_folder(folder: Path, config: Mapping[str, Any]) -> TextSource:
    """Tokenizer, stop ids and chat template, if `folder` has them; `config` is its config.json.

    Raises CheckpointError, and UnsupportedModel where generation_config.json asks for more than greedy decoding.
    """
    generation = optional_settings(folder / _GENERATION)
    check_fields(generation, GENERATION_FIELDS, f" in {_GENERATION}")
    stops = (*_ids(generation, folder / _GENERATION), *_ids(config, folder / "config.json"))
    path = folder / "tokenizer.json"
    content = read_file(path)
    if content is None:
        return TextSource(stop_ids=tuple(dict.fromkeys(stops)))
    settings = optional_settings(folder / _CONFIG)
    tokens = folder_tokens(folder, settings)
    tokenizer = folder_tokenizer(content, tokens.added, path)
    pad = None if "pad_token" in settings else tokenizer.pad_token
    end = tokenizer.file.id(tokens.named.get("eos_token", ""))
    return TextSource(
        tokenizer_json=tokenizer.content,
        stop_ids=tuple(dict.fromkeys((*stops, *([] if end is None else [end])))),
        bos=_bos(tokenizer, settings, folder),
        chat_template=_chat_template(folder, settings),
        special_tokens=({} if pad is None else {"pad_token": pad}) | dict(tokens.named),
    )


def unknown_generation(folder: Path) -> tuple[str, ...]:
    """The unknown fields of generation_config.json. Raises CheckpointError."""
    generation = optional_settings(folder / _GENERATION)
    return tuple(f"generation_config.{name}" for name in unknown_fields(generation, GENERATION_FIELDS))


def _ids(settings: Mapping[str, Any], path: Path) -> tuple[int, ...]:
    """`eos_token_id`: an id or a list of them."""
    stop = settings.get("eos_token_id")
    ids = stop if isinstance(stop, list) else [] if stop is None else [stop]
    if not all(isinstance(id, int) and not isinstance(id, bool) for id in ids):
        raise CheckpointError(f"eos_token_id in {path} is {shown(stop)}, neither an id nor a list of ids")
    return tuple(ids)


def _bos(tokenizer: FolderTokenizer, settings: Mapping[str, Any], folder: Path) -> int | None:
    """The id that this tokenizer puts before every text. Refuses one that appends ids, which would end the text."""
    path = folder / "tokenizer.json"
    for name, ids in (("add_bos_token", tokenizer.before), ("add_eos_token", tokenizer.after)):
        wanted = settings.get(name)
        if isinstance(wanted, bool) and wanted != bool(ids):
            does = "adds one" if ids else "does not add one"
            raise CheckpointError(f"{folder / _CONFIG} has {name}: {shown(wanted)}, but {path} {does}", _AGREE)
    if settings.get("split_special_tokens"):
        raise CheckpointError(
            f"{folder / _CONFIG} has split_special_tokens", "special tokens in a text are not split: remove the setting"
        )
    if tokenizer.after:
        raise CheckpointError(
            f"{path} puts {shown(tokenizer.file.token(tokenizer.after[0]))} after every text",
            "a prompt that ends cannot be continued: remove it from the post-processor",
        )
    if len(tokenizer.before) > 1:
        raise CheckpointError(f"{path} puts {len(tokenizer.before)} ids before every text", "at most one is supported")
    return tokenizer.before[0] if tokenizer.before else None


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    content = read_file(path)
    if content is None:
        return _default_template(settings.get("chat_template"), folder / _CONFIG)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 at byte {error.start}") from error


def _default_template(found: Any, path: Path) -> str | None:
    """The template, or the one named `default` of several."""
    if isinstance(found, list) and all(_is_named_template(entry) for entry in found):
        found = next((entry["template"] for entry in found if entry["name"] == "default"), None)
    if found is None:
        return None
    if not isinstance(found, str):
        raise CheckpointError(
            f"{path}: chat_template is {shown(found)}, neither a string nor a list of named templates"
        )
    return spelled(found, "chat_template", path)


def _is_named_template(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get("template"), str)
