"""Tokenizer, stop ids, BOS and chat template of a GGUF file, with the defaults of llama.cpp (`llama-vocab.cpp`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from kern.checkpoints.checkpoint import CheckpointError, TextSource
from kern.checkpoints.config import shown
from kern.checkpoints.gguf_fields import TEXT_FIELDS
from kern.checkpoints.gguf_tokenizer import PRE_TOKENIZERS, byte_level, sentencepiece
from kern.checkpoints.gguf_vocabulary import GgufTextError, GgufVocabulary, read_vocabulary, stop_ids, token_id, value

_GGML: Final = "tokenizer.ggml."
_NAMED: Final[Mapping[str, str]] = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",  # misspelled in the format
    "pad_token": "padding_token_id",
    "cls_token": "cls_token_id",
    "mask_token": "mask_token_id",
}
_SENTENCEPIECE_IDS: Final[Mapping[str, int]] = {"bos_token": 1, "eos_token": 2, "unk_token": 0}
"""Default ids of a SentencePiece vocabulary."""


def text_of_gguf(metadata: Mapping[str, Any], path: Path) -> TextSource:
    """Tokenizer, stop ids and chat template from `tokenizer.*` of the file at `path`. Raises CheckpointError."""
    try:
        return _text(metadata)
    except CheckpointError as error:
        raise GgufTextError(f"{path}: {error.message}", error.help) from error


def _text(metadata: Mapping[str, Any]) -> TextSource:
    for key, field in TEXT_FIELDS.items():
        if field.verdict == "refused" and metadata.get(key):
            raise GgufTextError(f"{key} in the GGUF is {shown(metadata[key])}: {field.note}")
    model = metadata.get(f"{_GGML}model")
    read = {"gpt2": _byte_level, "llama": _sentencepiece}.get(model) if isinstance(model, str) else None
    if read is None:
        has = "has no tokenizer" if model is None else f"has a tokenizer of the unknown kind {shown(model)}"
        raise GgufTextError(f"the GGUF {has}", "known kinds: gpt2, llama; give the Hugging Face folder")
    return read(metadata)


def _byte_level(metadata: Mapping[str, Any]) -> TextSource:
    name = value(metadata, f"{_GGML}pre", str)
    pre = PRE_TOKENIZERS.get(name or "")
    if pre is None:
        has = "does not name its pre-tokenizer" if name is None else f"has the unknown pre-tokenizer {shown(name)}"
        raise GgufTextError(f"the GGUF {has}", f"known: {', '.join(PRE_TOKENIZERS)}; give the Hugging Face folder")
    if value(metadata, f"{_GGML}add_space_prefix", bool):
        raise GgufTextError(f"{_GGML}add_space_prefix in the GGUF is true: a space before the text is not supported")
    return _assembled(
        metadata,
        read_vocabulary(metadata),
        {},
        pre.adds_bos,
        lambda vocabulary, ids: byte_level(metadata, vocabulary, pre),
    )


def _sentencepiece(metadata: Mapping[str, Any]) -> TextSource:
    space_first = value(metadata, f"{_GGML}add_space_prefix", bool)
    return _assembled(
        metadata,
        read_vocabulary(metadata),
        _SENTENCEPIECE_IDS,
        True,
        lambda vocabulary, ids: sentencepiece(
            metadata, vocabulary, unknown=ids["unk_token"], space_first=space_first is not False
        ),
    )


def _assembled(
    metadata: Mapping[str, Any],
    vocabulary: GgufVocabulary,
    defaults: Mapping[str, int],
    adds_bos: bool,
    tokenizer: Callable[[GgufVocabulary, Mapping[str, int | None]], bytes],
) -> TextSource:
    """Everything but the tokenizer, which depends on its kind; `defaults` are the ids of missing keys."""
    ids = {name: token_id(metadata, key, vocabulary, defaults.get(name)) for name, key in _NAMED.items()}
    given = value(metadata, f"{_GGML}add_bos_token", bool)
    if given is not None:
        adds_bos = given
    if adds_bos and ids["bos_token"] is None:
        raise GgufTextError(f"{_GGML}add_bos_token in the GGUF is true, but {_GGML}bos_token_id is missing")
    return TextSource(
        tokenizer_json=tokenizer(vocabulary, ids),
        stop_ids=stop_ids(metadata, vocabulary, ids["eos_token"]),
        bos=ids["bos_token"] if adds_bos else None,
        chat_template=value(metadata, "tokenizer.chat_template", str),
        special_tokens={name: vocabulary.tokens[id] for name, id in ids.items() if id is not None},
    )
