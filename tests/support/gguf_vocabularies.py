"""Vocabularies of tokenizer.json files, written into GGUF files as llama.cpp's converter writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gguf import GGUFWriter

Json = Mapping[str, Any]


def looks_special(token: str) -> bool:
    """convert_hf_to_gguf.py, `does_token_look_special`."""
    return (
        token in ("<pad>", "<mask>", "<2mass>", "[@BOS@]")
        or (token.startswith("<|") and token.endswith("|>"))
        or (token.startswith("<｜") and token.endswith("｜>"))
        or (token.startswith("<unused") and token.endswith(">"))
    )


def vocabulary_of(document: Json, size: int | None = None) -> tuple[list[str], list[int]]:
    """Tokens and types of a tokenizer.json in the order of ids; gaps up to `size` are unused tokens."""
    added = {token["content"]: token for token in document["added_tokens"]}
    ids = dict(document["model"]["vocab"]) | {content: token["id"] for content, token in added.items()}
    tokens = {id: token for token, id in ids.items()}
    listed = [tokens.get(id, f"[PAD{id}]") for id in range(size or max(tokens) + 1)]

    def type_of(id: int) -> int:
        if id not in tokens:
            return 5
        if tokens[id] not in added:
            return 1
        return 3 if added[tokens[id]]["special"] or looks_special(tokens[id]) else 4

    return listed, [type_of(id) for id in range(len(listed))]


def merges_of(document: Json) -> list[str]:
    """The merges, each as two tokens and a space."""
    return [merge if isinstance(merge, str) else " ".join(merge) for merge in document["model"]["merges"]]


def write_gguf(
    path: Path,
    model: str,
    tokens: Sequence[str],
    types: Sequence[int],
    *,
    pre: str,
    merges: Sequence[str] = (),
    scores: Sequence[float] = (),
    settings: Mapping[str, int | bool | str] | None = None,
) -> Path:
    """A file of a vocabulary alone; `settings` are keys below `tokenizer.ggml.`."""
    writer = GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(list(tokens))
    writer.add_token_types(list(types))
    if merges:
        writer.add_token_merges(list(merges))
    if scores:
        writer.add_token_scores(list(scores))
    for name, value in (settings or {}).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}[type(value)]
        add(f"tokenizer.ggml.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
