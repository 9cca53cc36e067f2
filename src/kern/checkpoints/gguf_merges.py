"""The merges of a SentencePiece vocabulary, from the scores of its tokens.

SentencePiece joins the pair of neighbours whose token has the highest score, of several the leftmost, and any character
may be one of the two. The tokenizers library joins the pair whose merge is listed first, and both are tokens. What
would come out differently is refused.
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
"""Its tokens of single bytes, which some converters write as normal ones."""
_LONGEST: Final = 256
"""Characters of a token: every way to cut one is looked at."""
_LONGEST_RUN: Final = 64
_Merge = tuple[float, str, str]


def scored_merges(
    metadata: Mapping[str, Any], vocabulary: GgufVocabulary, ids: Mapping[str, int]
) -> list[tuple[str, str]]:
    """The merges that give each token, the highest score first: as transformers makes them from SentencePiece's file.

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
    """Whether merges make a token. A user's own is found in a text as a whole, unless spaces are yet to be replaced."""
    return token not in BYTES and (kind is Kind.NORMAL or (kind is Kind.USER_DEFINED and SPACE in token))


def _cuts(token: str) -> Iterator[tuple[str, str]]:
    return ((token[:place], token[place:]) for place in range(1, len(token)))


def _halves(token: str, ids: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Each way to cut a token into two others, by their ids."""
    yield from sorted(
        (cut for cut in _cuts(token) if cut[0] in ids and cut[1] in ids), key=lambda cut: (ids[cut[0]], ids[cut[1]])
    )


def _check_lengths(tokens: list[str]) -> None:
    long = next((token for token in tokens if len(token) > _LONGEST), None)
    if long is not None:
        raise GgufTextError(f"the GGUF's token {shown(long)} has {len(long):,} characters, more than {_LONGEST}")


def _check_parts(made: list[str], ids: Mapping[str, int]) -> None:
    """Refuse tokens made through a character that is not a token, which no merge can have."""
    for token in made:
        for cut in () if ids.keys() >= {*token} else _cuts(token):
            lacked = next((part for part in cut if part not in ids), None)
            if lacked is not None and _may_appear(cut, ids):
                raise GgufTextError(
                    f"the GGUF's token {shown(token)} is made through {shown(lacked)}, which is not a token"
                )


def _check_unused(unused: list[str], ids: Mapping[str, int]) -> None:
    """Refuse unused tokens that a text may have: SentencePiece takes some apart again, llama.cpp gives their ids."""
    for token in unused:
        if len(token) == 1 or any(_may_appear(cut, ids) for cut in _cuts(token)):
            raise GgufTextError(f"the GGUF's token {shown(token)} is unused, and part of texts")


def _may_appear(cut: tuple[str, str], ids: Mapping[str, int]) -> bool:
    """Whether both halves are what SentencePiece may join: tokens, or any characters."""
    return all(len(part) == 1 or part in ids for part in cut)


def _check_scores(merges: list[_Merge]) -> None:
    """Refuse tokens of one score, unless they are runs of a character that come out alike."""
    alike: defaultdict[float, list[str]] = defaultdict(list)
    for score, left, right in merges:
        alike[score].append(left + right)
    for tokens in alike.values():
        first, other = tokens[0], next((token for token in tokens if token != tokens[0]), None)
        if other is None:
            continue
        if len({*"".join(tokens)}) > 1 or not _are_runs_alike(first[0], merges):
            raise GgufTextError(
                f"the GGUF's tokens {shown(first)} and {shown(other)} have one score, so that the order of their "
                "merges depends on the text",
            )


def _are_runs_alike(character: str, merges: list[_Merge]) -> bool:
    """Whether runs of a character are cut alike by scores, of equal ones the leftmost, and by the list of merges."""
    scores: dict[tuple[int, int], float] = {}
    ranks: dict[tuple[int, int], float] = {}
    for rank, (score, left, right) in enumerate(merges):
        if {*left, *right} == {character}:
            scores[len(left), len(right)], ranks[len(left), len(right)] = -score, rank
    longest = max(left + right for left, right in ranks)
    lengths = range(2, 4 * longest) if longest <= _LONGEST_RUN else ()
    return bool(lengths) and all(_cut_run(length, scores.get) == _cut_run(length, ranks.get) for length in lengths)


def _cut_run(length: int, order: Callable[[tuple[int, int]], float | None]) -> list[int]:
    """The lengths of the tokens of a run, joined in an order of pairs, of equal ones the leftmost first."""
    parts = [1] * length
    while True:
        found = [(order(pair), place) for place, pair in enumerate(pairwise(parts))]
        best = min(((rank, place) for rank, place in found if rank is not None), default=None)
        if best is None:
            return parts
        place = best[1]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
