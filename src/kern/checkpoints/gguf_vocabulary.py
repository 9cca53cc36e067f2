"""The vocabulary of a GGUF file: tokens, their kinds, and those that end generation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, TypeVar

from kern.checkpoints.checkpoint import CheckpointError
from kern.checkpoints.config import shown

_Kind = TypeVar("_Kind", bound=object)


class GgufTextError(CheckpointError, code="unsupported-gguf-tokenizer", help="give the Hugging Face folder"):
    """The tokenizer in a GGUF file is invalid, or kern cannot reproduce it exactly."""


class Kind(IntEnum):
    """`tokenizer.ggml.token_type` (llama.cpp, `llama_token_type`)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_ENDS: Final = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>",
    "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
})  # fmt: skip
"""The texts of tokens that end generation in llama.cpp (`llama-vocab.cpp`, `special_eog_ids`)."""
_FILLS: Final = frozenset({
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
    "<reponame>", "<|file_sep|>",
})  # fmt: skip
"""Those of tokens around files and gaps in code, which end generation there too."""
_ID_KEYS: Final = ("eot_token_id", "eom_token_id", "fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id")
"""Keys of tokens that end generation, in addition to `eos_token_id`."""


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """Tokens and kinds in the order of ids, and the ids of tokens whose names say that they end generation."""

    tokens: tuple[str, ...]
    kinds: tuple[Kind, ...]
    ends: tuple[int, ...]

    def of(self, *kinds: Kind) -> list[str]:
        """The tokens of these kinds."""
        return [token for token, kind in zip(self.tokens, self.kinds, strict=True) if kind in kinds]

    def ids(self) -> dict[str, int]:
        """The ids of all tokens except the unused, which only fill gaps."""
        pairs = enumerate(zip(self.tokens, self.kinds, strict=True))
        return {token: id for id, (token, kind) in pairs if kind is not Kind.UNUSED}


def read_vocabulary(metadata: Mapping[str, Any]) -> GgufVocabulary:
    """`tokenizer.ggml.tokens` and their types; a token whose name ends generation is a control token.

    Raises CheckpointError.
    """
    texts, types = listed(metadata, "tokens", str), listed(metadata, "token_type", int)
    tokens = tuple(text or f"[EMPTY_{id}]" for id, text in enumerate(texts))
    if len(set(tokens)) != len(tokens) or len(types) != len(tokens):
        raise GgufTextError(
            f"the GGUF's tokenizer has {len(tokens)} tokens, {len(set(tokens))} of them distinct, and "
            f"{len(types)} token types",
        )
    kinds = [_kind(token, type) for token, type in zip(tokens, types, strict=True)]
    names = _end_names(tokens)
    ends = [id for id, token in enumerate(tokens) if token in names]
    plain = {id for id in ends if kinds[id] is Kind.NORMAL and _merged(tokens[id], tokens, metadata)}
    ends = [id for id in ends if id not in plain]
    for id in ends:
        kinds[id] = Kind.CONTROL
    return GgufVocabulary(tokens, tuple(kinds), tuple(ends))


def _kind(token: str, type: int) -> Kind:
    if type not in Kind.__members__.values():
        raise GgufTextError(f"the GGUF's token {shown(token)} has the unknown type {type}")
    return Kind(type)


def _end_names(tokens: Iterable[str]) -> frozenset[str]:
    """llama.cpp excludes `<|end|>` and `</s>` where other tokens show that they end only part of a turn."""
    present = _ENDS.intersection(tokens)
    calls = present & {"<|call|>", "<|calls|>"}
    parts: set[str] = set()
    if calls and present & {"<|return|>", "<|flush|>"}:
        parts.add("<|end|>")
    if "<|tool_response>" in present:
        parts.add("</s>")
    return (_ENDS | _FILLS) - parts


def _merged(token: str, tokens: Iterable[str], metadata: Mapping[str, Any]) -> bool:
    """Whether merges produce this token, so that it is ordinary text: `</s>` of Qwen3 is HTML."""
    splits = [(token[:i], token[i:]) for i in range(1, len(token))]
    merges = metadata.get("tokenizer.ggml.merges")
    if isinstance(merges, list):
        made = {merge for merge in merges if isinstance(merge, str)}
        return any(f"{left} {right}" in made for left, right in splits)
    known = frozenset(tokens)
    return any(known.issuperset(split) for split in splits)


def stop_ids(metadata: Mapping[str, Any], vocabulary: GgufVocabulary, end: int | None) -> tuple[int, ...]:
    """The ids that end generation: `end`, those of keys, and those of well-known names. Raises CheckpointError."""
    found = [end, *(token_id(metadata, key, vocabulary) for key in _ID_KEYS), *vocabulary.ends]
    return tuple(dict.fromkeys(id for id in found if id is not None))


def token_id(
    metadata: Mapping[str, Any], key: str, vocabulary: GgufVocabulary, default: int | None = None
) -> int | None:
    """The id in `tokenizer.ggml.KEY`. Raises CheckpointError for one outside the vocabulary."""
    id = value(metadata, f"tokenizer.ggml.{key}", int)
    if id is None:
        return default if default is not None and default < len(vocabulary.tokens) else None
    if not 0 <= id < len(vocabulary.tokens):
        raise GgufTextError(f"tokenizer.ggml.{key} in the GGUF is {id}, but it has {len(vocabulary.tokens)} tokens")
    return id


def value(metadata: Mapping[str, Any], key: str, kind: type[_Kind]) -> _Kind | None:
    """A value of the metadata, None if it is absent. Raises CheckpointError for another type."""
    found = metadata.get(key)
    if found is None or type(found) is kind:
        return found
    raise GgufTextError(f"{key} in the GGUF is {shown(found)}, not of type {kind.__name__}")


def listed(metadata: Mapping[str, Any], name: str, *kinds: type[_Kind]) -> list[_Kind]:
    """The list `tokenizer.ggml.NAME`, each entry of one of `kinds`. Raises CheckpointError."""
    found = metadata.get(f"tokenizer.ggml.{name}")
    if found is None:
        raise GgufTextError(f"the GGUF has no tokenizer.ggml.{name}")
    if not isinstance(found, list) or any(type(entry) not in kinds for entry in found):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise GgufTextError(f"tokenizer.ggml.{name} in the GGUF is not a list of {wanted}")
    return found
