"""tokenizer.json from the vocabulary, merges and scores that a GGUF file carries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any, Final

from kern.models.checkpoint import CheckpointError
from kern.models.config import shown
from kern.models.gguf_vocabulary import ELSEWHERE, GgufVocabulary, Kind, listed

_SPACE: Final = "▁"
"""How SentencePiece writes a space."""
_BYTES: Final = frozenset(f"<0x{byte:02X}>" for byte in range(256))
"""Its tokens of single bytes, which some converters write as normal ones."""

# What comes before a text's merges, as llama.cpp's `llama-vocab.cpp` and the models' own tokenizer.json have it.
_WORDS: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """How a text is split into words, by each expression in turn.

    `whole_words`: a word that the vocabulary has is that token, whatever its merges. `composed`: characters are
    composed first (NFC). `adds_bos`: what `tokenizer.ggml.add_bos_token` says where it is missing.
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

    if bytes_of_their_own := vocabulary.of(Kind.BYTE):
        raise CheckpointError(
            f"the GGUF's token {shown(bytes_of_their_own[0])} is a byte, and its vocabulary is of bytes already",
            ELSEWHERE,
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
    """SentencePiece's BPE, whose merges are in the order of scores. Raises CheckpointError.

    With `space_first` a space is put before a text, and left out again at the beginning of what is decoded.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers

    ids = vocabulary.ids()
    merges = _scored_merges(metadata, vocabulary, ids)
    tokenizer = Tokenizer(
        models.BPE(
            vocab=ids,
            merges=merges,
            unk_token=None if unknown is None or not _is_special(vocabulary, unknown) else vocabulary.tokens[unknown],
            fuse_unk=True,
            byte_fallback=not _BYTES.isdisjoint(ids),
        )
    )
    spaces = normalizers.Replace(" ", _SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces] if space_first else [spaces])
    back = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*back, decoders.Strip(" ", 1, 0)] if space_first else back)
    return _with_added(tokenizer, vocabulary)


def _is_special(vocabulary: GgufVocabulary, id: int) -> bool:
    return vocabulary.kinds[id] in (Kind.UNKNOWN, Kind.CONTROL)


def _with_added(tokenizer: Any, vocabulary: GgufVocabulary) -> bytes:
    """Control tokens, the unknown one and what a user defined are found in a text as they are."""
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
            raise CheckpointError(f"the GGUF's merge {shown(merge)} is not of two tokens to a third", ELSEWHERE)
        merges.append((left, right))
    return merges


def _scored_merges(
    metadata: Mapping[str, Any], vocabulary: GgufVocabulary, ids: Mapping[str, int]
) -> list[tuple[str, str]]:
    """The merges that give each token, the highest score first: as transformers makes them from SentencePiece's file.

    Refuses scores that are all alike: some converters write such, and the order of merges is lost in them.
    """
    scores = listed(metadata, "scores", float, int)
    if len(scores) != len(vocabulary.tokens):
        raise CheckpointError(f"the GGUF has {len(scores)} scores for {len(vocabulary.tokens)} tokens", ELSEWHERE)
    if any(isnan(score) for score in scores):
        raise CheckpointError("a score of the GGUF's tokens is not a number", ELSEWHERE)
    _check_unused(vocabulary, ids)
    mergeable = (Kind.NORMAL, Kind.USER_DEFINED)
    made = [token for token, id in ids.items() if vocabulary.kinds[id] in mergeable and token not in _BYTES]
    merges = [(scores[ids[token]], left, right) for token in made for left, right in _halves(token, ids)]
    if len(merges) > 1 and len({score for score, _, _ in merges}) == 1:
        raise CheckpointError("the GGUF's tokens have one score, so that the order of merges is unknown", ELSEWHERE)
    merges.sort(key=lambda merge: merge[0], reverse=True)
    return [(left, right) for _, left, right in merges]


def _check_unused(vocabulary: GgufVocabulary, ids: Mapping[str, int]) -> None:
    """Refuse unused tokens that others may be made through: SentencePiece makes them and takes them apart again."""
    unused = frozenset(vocabulary.of(Kind.UNUSED))
    known = unused | ids.keys()
    for token in ids if unused else ():
        cuts = ((token[:place], token[place:]) for place in range(1, len(token)))
        for cut in cuts:
            if unused.intersection(cut) and known.issuperset(cut):
                raise CheckpointError(f"the GGUF's token {shown(token)} is made through an unused one", ELSEWHERE)


def _halves(token: str, ids: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Each way to cut a token into two others, by their ids."""
    cuts = ((token[:place], token[place:]) for place in range(1, len(token)))
    yield from sorted(
        (cut for cut in cuts if cut[0] in ids and cut[1] in ids), key=lambda cut: (ids[cut[0]], ids[cut[1]])
    )
