"""The token count of each pass: the number that explains most of the others.

>>> from kern.mining.call_sites import align
>>> sites, _ = align([[launch(0, "scale", 1)], [launch(1, "scale", 5)], [launch(2, "scale", 34)]])
>>> reference = choose(sites, passes=3)
>>> reference.chosen.name, reference.chosen.tokens
('grid.x', (1, 5, 34))
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from kern.mining.call_sites import Number, Site
from kern.mining.events import Kernel
from kern.mining.expression_fit import Fit, Sample, Status, fit, shown

Vector: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""The passes in which a number was seen, and its values there."""

CANDIDATES: Final = 64
"""How many different candidates are tried: those that most numbers equal."""
_SAMPLES: Final = 2**22
"""About how many values are fitted, over all candidates: for a recording with many, fewer candidates are tried."""
_FEWEST: Final = 2
_KEPT_FITS: Final = 4096
_MOST: Final = 2**31
# tests/mining/test_constants.py shows on simulated programs how far _COVERED and _CLOSE can be changed.
_COVERED: Final = 0.75
"""A candidate is seen in at least this share of the passes in which any is seen."""
_CLOSE: Final = 0.05
"""Candidates whose leftovers differ by less than this share of all numbers are equally good."""


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
    """The number taken for the token count, and the next best that all passes have and that groups them otherwise."""

    chosen: Explained
    runner_up: Explained | None


@lru_cache(_KEPT_FITS)
def _fit(samples: frozenset[Sample]) -> Fit:
    return fit(samples)


def fit_number(number: Number, passes: Sequence[int], tokens: Sequence[int | None]) -> Fit:
    """Fit a number of a site in `passes`; passes of unknown token count are left out.

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
    """The reference among the grids and integers that nearly all passes have; None where none of them varies.

    Each candidate is fitted to every number of every site that is not constant. The one that leaves the fewest unfit
    and underdetermined is the token count, or the smallest that differs from it by a factor: multiples explain as much,
    except by chance. Where a pass does not have it, numbers that equal it elsewhere give the count.
    """
    found: dict[Vector, tuple[Site, Number]] = {}
    weights: Counter[Vector] = Counter()
    for site in sites:
        for number in site.given_numbers():
            if len(set(number.values)) > 1:
                vector = (site.passes, number.values)
                weights[vector] += 1
                found.setdefault(vector, (site, number))
    possible = [vector for vector, (_, number) in found.items() if _may_count(number)]
    covered = max((len(indices) for indices, _ in possible), default=0)
    candidates = [vector for vector in possible if len(vector[0]) >= _COVERED * covered]
    candidates = sorted(candidates, key=lambda vector: -weights[vector])
    tried = _SAMPLES // sum(len(values) for _, values in weights) if candidates else 0
    candidates = candidates[: max(_FEWEST, min(CANDIDATES, tried))]
    if not candidates:
        return None
    ranked = sorted((_explain(candidate, weights, passes) for candidate in candidates), key=lambda ranked: ranked.key)
    alike = _partition(ranked[0].tokens)
    enough = ranked[0].left + _CLOSE * weights.total()
    multiples = [one for one in ranked if one.left <= enough and _partition(one.tokens) == alike]
    chosen = min(multiples, key=lambda one: (one.sum, one.key))
    as_wide = (one for one in ranked if len(one.vector[0]) >= len(chosen.vector[0]))
    other = next((one for one in as_wide if _partition(one.tokens) != alike), None)

    def explained(ranked: _Ranked) -> Explained:
        site, number = found[ranked.vector]
        left = (weights.total(), ranked.unfit, ranked.underdetermined)
        return Explained(site.kernel, site.occurrence, number.name, ranked.tokens, *left)

    return Reference(explained(chosen), None if other is None else explained(other))


def _partition(tokens: Sequence[int | None]) -> tuple[int, ...]:
    """Which passes have equal counts: the same for a count and its multiples."""
    first: dict[int | None, int] = {}
    return tuple(first.setdefault(count, index) for index, count in enumerate(tokens))


def _may_count(number: Number) -> bool:
    """Whether a number can be a token count: a side of a grid or an integer parameter, positive, and no packed bits."""
    if number.type in ("f32", "f64") or not number.name.startswith(("grid", "param")):
        return False
    return min(number.values) >= 1 and max(number.values) < _MOST


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A candidate, the token counts that it gives, and what these leave."""

    vector: Vector
    tokens: tuple[int | None, ...]
    unfit: int
    underdetermined: int

    @property
    def left(self) -> int:
        return self.unfit + self.underdetermined

    @property
    def sum(self) -> int:
        return sum(count for count in self.tokens if count is not None)

    @property
    def key(self) -> tuple[int, int, int, int]:
        return self.left, self.unfit, self.sum, -len(self.vector[0])


def _explain(candidate: Vector, weights: Counter[Vector], passes: int) -> _Ranked:
    tokens = _everywhere(candidate, weights, passes)
    left: Counter[Status] = Counter()
    for (indices, values), weight in weights.items():
        pairs = ((tokens[index], value) for index, value in zip(indices, values, strict=True))
        left[_fit(frozenset((count, value) for count, value in pairs if count is not None)).status] += weight
    return _Ranked(candidate, tokens, left["unfit"] + left["masked"], left["underdetermined"])


def _everywhere(reference: Vector, weights: Counter[Vector], passes: int) -> tuple[int | None, ...]:
    """The token count of every pass, None where it is unknown."""
    tokens = dict(zip(*reference, strict=True))
    missing: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for (indices, values), weight in weights.items():
        seen = dict(zip(indices, values, strict=True))
        both = [index for index in indices if index in tokens]
        if len({seen[index] for index in both}) > 1 and all(seen[index] == tokens[index] for index in both):
            for index in indices:
                if index not in tokens:
                    missing[index][seen[index]] += weight
    others = {index: counts.most_common(1)[0][0] for index, counts in missing.items()}
    return tuple(tokens.get(index, others.get(index)) for index in range(passes))
