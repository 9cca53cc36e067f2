"""tokenizer.json from the vocabulary and merges that a GGUF file carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from kern.models.checkpoint import CheckpointError
from kern.models.config import shown

_CONTROL: Final = 3
"""`tokenizer.ggml.token_type` of special tokens (llama.cpp, `LLAMA_TOKEN_TYPE_CONTROL`)."""

_ELSEWHERE: Final = "give the Hugging Face folder"
_Kind = TypeVar("_Kind")


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> bytes:
    """A byte-level BPE tokenizer that splits numbers into digits, as the tokenizers library stores it.

    Raises CheckpointError for any other kind of tokenizer, and for one that is damaged.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != ("gpt2", "smollm"):
        raise CheckpointError(
            f"the GGUF's tokenizer is {shown(kind[0])} with pre-tokenizer {shown(kind[1])}",
            "only 'gpt2' with 'smollm' can be read from GGUF; give the Hugging Face folder",
        )
    tokens, types = _list(metadata, "tokens", str), _list(metadata, "token_type", int)
    vocabulary = {token: id for id, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens) or len(types) != len(tokens):
        raise CheckpointError(
            f"the GGUF's tokenizer has {len(tokens)} tokens, {len(vocabulary)} of them different, and "
            f"{len(types)} types of tokens",
            _ELSEWHERE,
        )
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=_merges(metadata, vocabulary)))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return tokenizer.to_str().encode()


def _list(metadata: Mapping[str, Any], name: str, kind: type[_Kind]) -> list[_Kind]:
    """The list `tokenizer.ggml.NAME`, each entry of one kind."""
    found = metadata.get(f"tokenizer.ggml.{name}")
    if found is None:
        raise CheckpointError(f"the GGUF lacks tokenizer.ggml.{name}", _ELSEWHERE)
    if not isinstance(found, list) or any(type(entry) is not kind for entry in found):
        raise CheckpointError(f"tokenizer.ggml.{name} in the GGUF is no list of {kind.__name__}", _ELSEWHERE)
    return found


def _merges(metadata: Mapping[str, Any], vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = []
    for merge in _list(metadata, "merges", str):
        left, _, right = merge.partition(" ")
        if not {left, right, left + right} <= vocabulary.keys():
            raise CheckpointError(f"the GGUF's merge {shown(merge)} is not of two tokens to a third", _ELSEWHERE)
        merges.append((left, right))
    return merges
