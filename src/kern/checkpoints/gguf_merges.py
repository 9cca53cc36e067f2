"""The merges of a SentencePiece vocabulary, from the scores of its tokens.

SentencePiece joins the neighbours whose token has the highest score, the leftmost of several, and either may be any
character. The tokenizers library joins the pair whose merge is listed first, and both must be tokens. Vocabularies
for which the results can differ are refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from math import isnan
from typing import Any, Final

from kern.checkpoints.config import shown
from kern.checkpoints.gguf_vocabulary import GgufTextError, GgufVocabulary, Kind, listed

SPACE: Final = "▁"
"""How SentencePiece writes a space."""
BYTES: Final = frozenset(f"<0x{byte:02X}>" for byte in range(256))
"""Its byte tokens, which some converters write as normal ones."""
_LONGEST: Final = 256
"""Most characters of a token: every way to split one is examined."""
_LONGEST_RUN: Final = 64
_Merge = tuple[float, str, str]


def scored_merges(
    metadata: Mapping[str, Any], vocabulary: GgufVocabulary, ids: Mapping[str, int]
) -> list[tuple[str, str]]:
    """The merges that give each token, the highest score first, as transformers derives them from SentencePiece's file.

    Raises CheckpointError.
    """
    scores = listed(metadata, "scores", float, int)
    if len(scores) != len(vocabulary.tokens):
        raise GgufTextError(f"the GGUF has {len(scores)} scores for {len(vocabulary.tokens)} tokens")
    if any(isnan(score) for score in scores):
        raise GgufTextError("a score of the GGUF's tokens is not a number")
    made = [token for token, id in ids.items() if _is_made(token, vocabulary.kinds[id])]
    unused = vocabulary.of(Kind.UNUSED)
    _check_lengths([*made, *unused])
    _check_unused(unused, ids)
    _check_parts(made, ids)
    merges = [(scores[ids[token]], left, right) for token in made for left, right in _halves(token, ids)]
    merges.sort(key=lambda merge: merge[0], reverse=True)
    _check_scores(merges)
    return [(left, right) for _, left, right in merges]


def _is_made(token: str, kind: Kind) -> bool:
    """Whether merges produce a token. A user-defined one is matched whole, unless it contains a replaced space."""
    return token not in BYTES and (kind is Kind.NORMAL or (kind is Kind.USER_DEFINED and SPACE in token))


def _splits(token: str) -> Iterator[tuple[str, str]]:
    return ((token[:i], token[i:]) for i in range(1, len(token)))


def _halves(token: str, ids: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Each way to split a token into two others, in the order of their ids."""
    yield from sorted(
        (split for split in _splits(token) if split[0] in ids and split[1] in ids),
        key=lambda split: (ids[split[0]], ids[split[1]]),
    )


def _check_lengths(tokens: list[str]) -> None:
    long = next((token for token in tokens if len(token) > _LONGEST), None)
    if long is not None:
        raise GgufTextError(f"the GGUF's token {shown(long)} has {len(long):,} characters; the limit is {_LONGEST}")


def _check_parts(made: list[str], ids: Mapping[str, int]) -> None:
    """Refuse tokens whose merges go through a character that is not a token."""
    for token in made:
        for cut in () if ids.keys() >= {*token} else _splits(token):
            lacked = next((part for part in cut if part not in ids), None)
            if lacked is not None and _may_appear(cut, ids):
                raise GgufTextError(
                    f"the GGUF's token {shown(token)} is merged from {shown(lacked)}, which is not a token"
                )


def _check_unused(unused: list[str], ids: Mapping[str, int]) -> None:
    """Refuse unused tokens that a text may contain: SentencePiece splits some again, llama.cpp emits their ids."""
    for token in unused:
        if len(token) == 1 or any(_may_appear(cut, ids) for cut in _splits(token)):
            raise GgufTextError(f"the GGUF's token {shown(token)} is marked as unused, but a text can contain it")


def _may_appear(cut: tuple[str, str], ids: Mapping[str, int]) -> bool:
    """Whether SentencePiece may join both halves: tokens, or any characters."""
    return all(len(part) == 1 or part in ids for part in cut)


def _check_scores(merges: list[_Merge]) -> None:
    """Refuse tokens with equal scores, unless they are runs of one character that are split the same way."""
    alike: defaultdict[float, list[str]] = defaultdict(list)
    for score, left, right in merges:
        alike[score].append(left + right)
    for tokens in alike.values():
        first, other = tokens[0], next((token for token in tokens if token != tokens[0]), None)
        if other is None:
            continue
        if len({*"".join(tokens)}) > 1 or not _same_runs(first[0], merges):
            raise GgufTextError(
                f"the GGUF's tokens {shown(first)} and {shown(other)} have the same score, so the order of their "
                "merges depends on the text",
            )


def _same_runs(character: str, merges: list[_Merge]) -> bool:
    """Whether runs of a character are split the same way by scores (leftmost first) and by the list of merges."""
    scores: dict[tuple[int, int], float] = {}
    ranks: dict[tuple[int, int], float] = {}
    for rank, (score, left, right) in enumerate(merges):
        if {*left, *right} == {character}:
            scores[len(left), len(right)], ranks[len(left), len(right)] = -score, rank
    longest = max(left + right for left, right in ranks)
    lengths = range(2, 4 * longest) if longest <= _LONGEST_RUN else ()
    return bool(lengths) and all(_split_run(length, scores.get) == _split_run(length, ranks.get) for length in lengths)


def _split_run(length: int, order: Callable[[tuple[int, int]], float | None]) -> list[int]:
    """The lengths of the tokens of a run, joined in the given order of pairs, the leftmost of equal ones first."""
    parts = [1] * length
    while True:
        found = [(order(pair), index) for index, pair in enumerate(pairwise(parts))]
        best = min(((rank, index) for rank, index in found if rank is not None), default=None)
        if best is None:
            return parts
        index = best[1]
        parts[index : index + 2] = [parts[index] + parts[index + 1]]
