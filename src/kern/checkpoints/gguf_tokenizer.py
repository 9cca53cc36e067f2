"""tokenizer.json from the vocabulary, merges and scores that a GGUF file carries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kern.checkpoints.config import shown
from kern.checkpoints.gguf_merges import BYTES, SPACE, scored_merges
from kern.checkpoints.gguf_vocabulary import GgufTextError, GgufVocabulary, Kind, listed

# What precedes the merges, as in llama.cpp's `llama-vocab.cpp` and in the models' own tokenizer.json.
_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How a text is split into words, by one expression after another.

    `whole_words`: a word in the vocabulary is that token, whatever its merges. `composed`: characters are composed
    first (NFC). `adds_bos`: the default of `tokenizer.ggml.add_bos_token`.
    """

    splits: tuple[str, ...]
    whole_words: bool = False
    composed: bool = False
    adds_bos: bool = False


_LLAMA3: Final = PreTokenizer((_WORDS.format(numbers=r"\p{N}{1,3}"),), whole_words=True, adds_bos=True)
PRE_TOKENIZERS: Final[Mapping[str, PreTokenizer]] = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": PreTokenizer((_GPT2,)),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "qwen2": PreTokenizer((_WORDS.format(numbers=r"\p{N}"),), composed=True),
    "smollm": PreTokenizer((r"\p{N}", _GPT2)),
}


def byte_level(metadata: Mapping[str, Any], vocabulary: GgufVocabulary, pre: PreTokenizer) -> bytes:
    """A byte-level BPE tokenizer, as the tokenizers library stores it. Raises CheckpointError."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    if byte_tokens := vocabulary.of(Kind.BYTE):
        raise GgufTextError(
            f"the GGUF's token {shown(byte_tokens[0])} is a byte token, which a byte-level vocabulary does not have",
        )
    ids = vocabulary.ids()
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=_merges(metadata, ids), ignore_merges=pre.whole_words))
    if pre.composed:
        tokenizer.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(split), "isolated") for split in pre.splits]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return _with_added(tokenizer, vocabulary)


def sentencepiece(
    metadata: Mapping[str, Any], vocabulary: GgufVocabulary, *, unknown: int | None, space_first: bool
) -> bytes:
    """SentencePiece's BPE, whose merges are ordered by scores. Raises CheckpointError.

    With `space_first` a space is added before the text and removed from what is decoded.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers

    ids = vocabulary.ids()
    merges = scored_merges(metadata, vocabulary, ids)
    tokenizer = Tokenizer(
        models.BPE(
            vocab=ids,
            merges=merges,
            unk_token=None if unknown is None or not _is_special(vocabulary, unknown) else vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=not BYTES.isdisjoint(ids),
        )
    )
    spaces = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces] if space_first else [spaces])
    back = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*back, decoders.Strip(" ", 1, 0)] if space_first else back)
    return _with_added(tokenizer, vocabulary)


def _is_special(vocabulary: GgufVocabulary, id: int) -> bool:
    return vocabulary.kinds[id] in (Kind.UNKNOWN, Kind.CONTROL)


def _with_added(tokenizer: Any, vocabulary: GgufVocabulary) -> bytes:
    """Control tokens, the unknown token and user-defined tokens are matched whole."""
    from tokenizers import AddedToken

    for special, kinds in ((True, (Kind.CONTROL, Kind.UNKNOWN)), (False, (Kind.USER_DEFINED,))):
        added = [AddedToken(token, normalized=False, special=special) for token in vocabulary.of(*kinds)]
        tokenizer.add_tokens(added)
    content: str = tokenizer.to_str()
    return content.encode()


def _merges(metadata: Mapping[str, Any], ids: Mapping[str, int]) -> list[tuple[str, str]]:
    merges: list[tuple[str, str]] = []
    for merge in listed(metadata, "merges", str):
        space = merge.find(" ", 1)
        left, right = merge[:space], merge[space + 1 :]
        if space < 0 or not {left, right, left + right} <= ids.keys():
            raise GgufTextError(f"the GGUF's merge {shown(merge)} does not join two tokens into a third")
        merges.append((left, right))
    return merges
