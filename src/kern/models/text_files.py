"""tokenizer.json and text.json: what a text caller needs besides the manifest."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import ValidationError

from kern.checkpoints.checkpoint import CheckpointError, TextSource
from kern.checkpoints.config import TransformerConfig
from kern.contracts.text import TEXT_FILE, TOKENIZER_FILE, DecodeBytes, TextSettings, first_error
from kern.models.buffers import BF16_BYTES
from kern.models.weights import EMBEDDING, OWN, ROPE_TABLE, Precision, weights_of


def decode_bytes(config: TransformerConfig, precision: Precision = OWN) -> DecodeBytes:
    """What a decode step of one sequence must read: every matrix and norm once, the context's keys and values.

    Of a table that is only looked up (the rope table, an untied embedding) it reads one row.
    """
    weights = weights_of(config, precision)
    looked_up = weights[ROPE_TABLE].size // weights[ROPE_TABLE].shape[0]
    matrices = sum(weight.size for name, weight in weights.items() if name not in (EMBEDDING, ROPE_TABLE))
    if config.tied_embeddings:
        matrices += weights[EMBEDDING].size
    else:
        looked_up += config.hidden * BF16_BYTES
    return DecodeBytes(fixed=matrices + looked_up, per_context_token=config.layers * 2 * config.kv_size * BF16_BYTES)


def text_settings(config: TransformerConfig, text: TextSource, precision: Precision = OWN) -> TextSettings:
    """The contents of text.json. Raises CheckpointError for ids that the model does not have."""
    tokenizer = text.tokenizer_json
    try:
        return TextSettings(
            vocabulary=config.vocabulary,
            positions=config.max_positions,
            embedding=EMBEDDING,
            stop_ids=text.stop_ids,
            bos=text.bos,
            chat_template=text.chat_template,
            special_tokens=dict(text.special_tokens),
            tokenizer_sha256=hashlib.sha256(tokenizer).hexdigest() if tokenizer is not None else None,
            decode_bytes=decode_bytes(config, precision),
        )
    except ValidationError as error:
        raise CheckpointError(
            f"the checkpoint's {first_error(error)}", "correct its stop ids and its tokenizer"
        ) from error


def write_text_files(folder: Path, settings: TextSettings, tokenizer_json: bytes | None) -> None:
    """Write text.json, and tokenizer.json where there is one. Raises OSError."""
    (folder / TEXT_FILE).write_text(settings.model_dump_json(indent=1) + "\n", encoding="utf-8")
    if tokenizer_json is not None:
        (folder / TOKENIZER_FILE).write_bytes(tokenizer_json)
