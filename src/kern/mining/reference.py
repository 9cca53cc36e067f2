"""The token count of each pass: that number which explains most of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

from kern.mining.fitting import Fit, Sample, fit, shown, size
from kern.mining.launches import Kernel
from kern.mining.sites import Number, Site

Vector: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""The passes in which a number was seen, and its values there."""

CANDIDATES: Final = 64
"""How many different candidates are tried: those that most numbers equal."""


@dataclass(frozen=True, slots=True)
class Explained:
    """What is left when a number is taken for the token count: numbers that do not fit, and that fit ambiguously."""

    kernel: Kernel
    occurrence: int
    name: str
    tokens: tuple[int | None, ...]
    numbers: int
    unfit: int
    underdetermined: int


@dataclass(frozen=True, slots=True)
class Reference:
    """The number taken for the token count, and the next best that tells other passes apart."""

    chosen: Explained
    runner_up: Explained | None


@cache
def _fit(samples: frozenset[Sample]) -> Fit:
    return fit(samples)


def fit_number(number: Number, passes: Sequence[int], tokens: Sequence[int | None]) -> Fit:
    """Fit a number of a site that stands in `passes`; passes of unknown token count are left out.

    A float, and a block's side, can only be constant in a manifest.
    """
    pairs = ((tokens[index], value) for index, value in zip(passes, number.values, strict=True))
    found = _fit(frozenset((count, value) for count, value in pairs if count is not None))
    if found.status == "unfit" or isinstance(found.expression, int):
        return found
    if number.type in ("f32", "f64") or number.name.startswith("block"):
        return Fit("unfit", None, f"it is not constant: {shown(found.samples)}", found.samples)
    return found


def choose(sites: Sequence[Site], passes: int) -> Reference | None:
    """The reference among the grids and integers that all passes have; None where none of them varies.

    Each candidate is fitted to every number of every site that is not constant. The one that leaves the fewest unfit
    and underdetermined is the token count; of several, that under which the expressions are smallest.
    """
    found: dict[Vector, tuple[Site, Number]] = {}
    weights: Counter[Vector] = Counter()
    for site in sites:
        for number in site.numbers():
            if len(set(number.values)) > 1:
                vector = (site.passes, number.values)
                weights[vector] += 1
                found.setdefault(vector, (site, number))
    covered = max((len(vector[0]) for vector in found if _may_count(found[vector][1])), default=0)
    candidates = [v for v in found if len(v[0]) == covered and _may_count(found[v][1])]
    candidates = sorted(candidates, key=lambda vector: -weights[vector])[:CANDIDATES]
    ranked = sorted((_explain(candidate, weights, passes) for candidate in candidates), key=lambda r: r[:2])
    explained = [_named(*found[vector], tokens, left, weights) for left, _, tokens, vector in ranked]
    if not explained:
        return None
    alike = _partition(explained[0].tokens)
    return Reference(explained[0], next((other for other in explained if _partition(other.tokens) != alike), None))


def _partition(tokens: Sequence[int | None]) -> tuple[int, ...]:
    """Which passes have equal counts: the same for a count and its multiples."""
    return tuple(tokens.index(count) for count in tokens)


def _may_count(number: Number) -> bool:
    """Whether a number can be a token count: a positive integer."""
    return number.type not in ("f32", "f64") and min(number.values) >= 1


_Ranked: TypeAlias = tuple[tuple[int, int, int], int, tuple[int | None, ...], Vector]


def _explain(candidate: Vector, weights: Counter[Vector], passes: int) -> _Ranked:
    """What a candidate leaves (in all, unfit, underdetermined), the size of the expressions, the tokens."""
    tokens: list[int | None] = [None] * passes
    for index, value in zip(*candidate, strict=True):
        tokens[index] = value
    unfit, underdetermined, total = 0, 0, 0
    for (indices, values), weight in weights.items():
        pairs = ((tokens[index], value) for index, value in zip(indices, values, strict=True))
        found = _fit(frozenset((count, value) for count, value in pairs if count is not None))
        unfit += weight * (found.status in ("unfit", "masked"))
        underdetermined += weight * (found.status == "underdetermined")
        total += weight * (0 if found.expression is None else size(found.expression))
    return (unfit + underdetermined, unfit, underdetermined), total, tuple(tokens), candidate


def _named(
    site: Site,
    number: Number,
    tokens: tuple[int | None, ...],
    left: tuple[int, int, int],
    weights: Counter[Vector],
) -> Explained:
    return Explained(
        site.kernel, site.occurrence, number.name, tokens, sum(weights.values()), unfit=left[1], underdetermined=left[2]
    )
