"""tokenizer.json from the vocabulary and merges that a GGUF file carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kern.models.checkpoint import CheckpointError

_CONTROL: Final = 3
"""`tokenizer.ggml.token_type` of special tokens (llama.cpp, `LLAMA_TOKEN_TYPE_CONTROL`)."""

_NEEDED: Final = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type")


def tokenizer_from_gguf(metadata: Mapping[str, Any]) -> bytes:
    """A byte-level BPE tokenizer that splits numbers into digits, as the tokenizers library stores it.

    Raises CheckpointError for any other kind of tokenizer.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != ("gpt2", "smollm"):
        raise CheckpointError(
            f"the GGUF's tokenizer is {kind[0]!r} with pre-tokenizer {kind[1]!r}",
            "only 'gpt2' with 'smollm' can be read from GGUF; give the Hugging Face folder",
        )
    missing = [key for key in _NEEDED if key not in metadata]
    if missing:
        raise CheckpointError(f"the GGUF lacks {', '.join(missing)}", "give the Hugging Face folder")
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types: list[int] = metadata["tokenizer.ggml.token_type"]
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return tokenizer.to_str().encode()
