"""Finding passes in a run by what recurs: no knowledge of the program, and no times.

A pass touches the memory that it keeps (its weights) once each, always in the same order; memory that it uses over and
over, or that moves, recurs at other distances. So the addresses that recur at the distance which most of them share,
for longest, are taken for anchors, and a pass begins where they start over.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np

from kern.mining.launches import Event, Launch
from kern.mining.records import Three

Span: TypeAlias = tuple[int, int]
"""The orders of the first event of a pass and of the one after its last."""

_FAMILY: Final = 0.1
"""The least share of a pass's anchors in kernels that most passes launch: other sizes may have other kernels."""


@dataclass(frozen=True, slots=True)
class _Sighting:
    """An identity was seen in a launch."""

    launch: Launch
    identity: int


def find_cores(events: Sequence[Event]) -> tuple[Span, ...]:
    """Each pass from its first anchor to its last, in order; none where nothing recurs."""
    launches = [event for event in events if isinstance(event, Launch)]
    sightings = _anchors(_addresses(launches)) or _anchors(_symbols(launches))
    segments = _segments(sightings, _beginning(sightings))
    return tuple((part[0].launch.order, part[-1].launch.order + 1) for part in _family(segments))


def _addresses(launches: Sequence[Launch]) -> list[_Sighting]:
    """Each device address in each launch, once."""
    return [
        _Sighting(launch, address)
        for launch in launches
        for address in dict.fromkeys(p.address for p in launch.pointers if p.on_device)
    ]


def _symbols(launches: Sequence[Launch]) -> list[_Sighting]:
    """Kernels in place of addresses, for a record without any."""
    number: dict[str, int] = {}
    return [_Sighting(launch, number.setdefault(launch.symbol, len(number))) for launch in launches]


def _anchors(sightings: Sequence[_Sighting]) -> list[_Sighting]:
    """The sightings of those identities that recur at one distance: that which they share for longest.

    An identity's distance is the lower median of the events between its sightings, and counts for as long as it is
    seen. Distances within a factor of two belong together. The weight grows with the root of the distance: what is
    used in every part of a pass recurs at short distances, but is little beside the weights; what is used in some
    passes only recurs at longer ones, and is less still.
    """
    if not sightings:
        return []
    orders = np.array([s.launch.order for s in sightings])
    identities = np.array([s.identity for s in sightings], dtype=np.uint64)
    ranked = np.lexsort((orders, identities))
    orders, identities = orders[ranked], identities[ranked]
    starts = np.flatnonzero(np.r_[True, identities[1:] != identities[:-1]])
    found: list[tuple[int, int, int]] = []
    for start, stop in zip(starts, np.r_[starts[1:], len(orders)], strict=True):
        if stop - start > 1:
            gaps = np.sort(np.diff(orders[start:stop]))
            found.append((int(gaps[(len(gaps) - 1) // 2]), int(gaps.sum()), int(identities[start])))
    chosen = _shared_distance(sorted(found))
    return [s for s in sightings if s.identity in chosen]


def _shared_distance(found: Sequence[tuple[int, int, int]]) -> frozenset[int]:
    """The identities within the factor of two of distance that weighs most. `found`: distance, span, identity."""
    best, best_weight, end, weight = (0, 0), 0.0, 0, 0
    for first, (distance, span, _) in enumerate(found):
        while end < len(found) and found[end][0] < 2 * distance:
            weight += found[end][1]
            end += 1
        if weight * distance**0.5 > best_weight:
            best, best_weight = (first, end), weight * distance**0.5
        weight -= span
    return frozenset(identity for _, _, identity in found[slice(*best)])


def _beginning(sightings: Sequence[_Sighting]) -> int | None:
    """The anchor that passes begin with: where the grids before do not tell the grids after.

    Inside a pass, equal grids are followed by equal ones; after its end comes a pass of any size. None where all
    passes are alike.
    """
    following: defaultdict[tuple[int, int], defaultdict[Three, Counter[Three]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    for here, after in pairwise(sightings):
        if here.launch is not after.launch:
            following[here.identity, after.identity][here.launch.grid][after.launch.grid] += 1
    surprises = {
        pair: sum(grids.total() - max(grids.values()) for grids in followed.values())
        for pair, followed in following.items()
    }
    (_, first), most = max(surprises.items(), key=lambda entry: entry[1], default=((0, 0), 0))
    return first if most else None


def _segments(sightings: Sequence[_Sighting], first: int | None) -> list[list[_Sighting]]:
    """The sightings, cut at the `first` anchor, and where anchors start over: two that follow each other were both seen
    since the last cut.

    Two, since one alone may be a launch that came late.
    """
    segments: list[list[_Sighting]] = []
    seen: set[int] = set()
    single = len({s.identity for s in sightings}) == 1
    for here, after in pairwise([*sightings, *sightings[-1:]]):
        again = here.identity in seen and (single or (after.identity in seen and after is not here))
        if again or here.identity == first or not segments:
            segments.append([])
            seen = set()
        segments[-1].append(here)
        seen.add(here.identity)
    return segments


def _family(segments: Sequence[list[_Sighting]]) -> list[list[_Sighting]]:
    """The segments that are passes: whole ones, from the first kernel that most whole ones launch to the last.

    What initialises the memory touches each anchor too, but with kernels of its own.
    """
    most = max((len(segment) for segment in segments), default=0)
    whole = [segment for segment in segments if _whole(segment, most)]
    launched = Counter(symbol for segment in whole for symbol in {s.launch.symbol for s in segment})
    common = {symbol for symbol, count in launched.items() if 2 * count >= len(whole) and count > 1}
    passes = []
    for segment in whole:
        places = [place for place, sighting in enumerate(segment) if sighting.launch.symbol in common]
        if len(places) >= _FAMILY * len(segment):
            passes.append(segment[places[0] : places[-1] + 1])
    return [segment for segment in passes if _whole(segment, most)]


def _whole(segment: Sequence[_Sighting], most: int) -> bool:
    return 2 * len(segment) >= most
