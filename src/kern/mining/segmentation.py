"""Finding passes in a run by what recurs: no knowledge of the program, and no times.

A pass touches the memory that it keeps (its weights) once each, always in the same order; memory that it uses over and
over, or that moves, recurs at other distances. So the addresses that recur at the distance which most of them share,
for longest, are taken as anchors, and a pass begins where they start over.

Three passes, of 1, 5 and 2 tokens, that touch the addresses A, B and C:

>>> run = [(tokens, address) for tokens in (1, 5, 2) for address in (0xA, 0xB, 0xC)]
>>> find_cores([launch(order, "scale", *each) for order, each in enumerate(run)])
((0, 3), (3, 6), (6, 9))
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Final, TypeAlias

from kern.mining.events import Event, Launch
from kern.mining.schema import Three

Span: TypeAlias = tuple[int, int]
"""The orders of the first event of a pass and of the one after its last."""

# tests/mining/test_constants.py shows on simulated programs how far each of these can be changed.
_REACH: Final = 0.35
"""The power of the distance with which anchors are weighed."""
_AHEAD: Final = 64
"""How many sightings are looked at to see whether anchors start over; fewer where there were fewer since the last cut.
"""
_REPEATED: Final = 1 / 3
"""The share of the anchors in these that must have been seen: a pass may begin with what the one before did not use."""
_FAMILY: Final = 0.1
"""The least share of a pass's anchors in kernels that most passes launch: other sizes may have other kernels."""


@dataclass(frozen=True, slots=True)
class _Sighting:
    """The identities that are seen in a launch, each once."""

    launch: Launch
    identities: tuple[int, ...]


_Segment: TypeAlias = Sequence[_Sighting]
_Shape: TypeAlias = tuple[str, Three]
"""A kernel's symbol and its grid."""


def find_cores(events: Sequence[Event]) -> tuple[Span, ...]:
    """Each pass from its first anchor to its last, in order; none where nothing recurs."""
    launches = [event for event in events if isinstance(event, Launch)]
    sightings = _addresses(launches) or _symbols(launches)
    passes = _passes(sightings)
    if passes:  # again, without what came before and after: initialisation touches the weights too
        first, last = passes[0][0].launch.order, passes[-1][-1].launch.order
        passes = _passes([s for s in sightings if first <= s.launch.order <= last]) or passes
    return tuple((part[0].launch.order, part[-1].launch.order + 1) for part in passes)


def _passes(sightings: Sequence[_Sighting]) -> list[_Segment]:
    """The passes, each from its first to its last anchor that varies with its size, if any does."""
    anchored = _anchored(sightings)
    varying = _varying(anchored)
    segments = _family(_segments(anchored, _beginning([s for s in anchored if varying.intersection(s.identities)])))
    return [_between(segment, varying) for segment in segments]


def _varying(sightings: Sequence[_Sighting]) -> frozenset[int]:
    """The anchors that vary with a pass's size: seen in at least half as many shapes as any; none if none vary."""
    shapes: defaultdict[int, set[_Shape]] = defaultdict(set)
    for sighting in sightings:
        for identity in sighting.identities:
            shapes[identity].add(_shape(sighting))
    most = max(map(len, shapes.values()), default=0)
    return frozenset(identity for identity, found in shapes.items() if len(found) > 1 and 2 * len(found) >= most)


def _shape(sighting: _Sighting) -> _Shape:
    return sighting.launch.symbol, sighting.launch.grid


def _between(segment: _Segment, identities: frozenset[int]) -> _Segment:
    """A segment from the first to the last sighting of any of the identities; all of it where there is none."""
    indices = [index for index, sighting in enumerate(segment) if identities.intersection(sighting.identities)]
    return segment[indices[0] : indices[-1] + 1] if indices else segment


def _addresses(launches: Sequence[Launch]) -> list[_Sighting]:
    """The device addresses that each launch is given."""
    return [
        _Sighting(launch, tuple({pointer.address for pointer in launch.pointers if pointer.on_device}))
        for launch in launches
        if any(pointer.on_device for pointer in launch.pointers)
    ]


def _symbols(launches: Sequence[Launch]) -> list[_Sighting]:
    """Kernels instead of addresses, for a recording without any."""
    number: dict[str, int] = {}
    return [_Sighting(launch, (number.setdefault(launch.symbol, len(number)),)) for launch in launches]


def _anchored(sightings: Sequence[_Sighting]) -> list[_Sighting]:
    """The sightings of those identities that recur at one distance: that which they share for longest.

    An identity's distance is that between its sightings which a third of them do not reach, and counts for as long as
    it is seen. Distances within a factor of two belong together. Longer ones count for more, slowly: what is used in
    every part of a pass recurs at short distances, and is as many addresses as the weights in a small program;
    what is used in some passes only recurs at longer ones, and is little.
    """
    seen: defaultdict[int, list[int]] = defaultdict(list)
    for sighting in sightings:
        for identity in sighting.identities:
            seen[identity].append(sighting.launch.order)
    found: list[tuple[int, int, int]] = []
    for identity, orders in seen.items():
        if len(orders) > 1:
            gaps = sorted(after - here for here, after in pairwise(orders))
            found.append((gaps[(len(gaps) - 1) // 3], orders[-1] - orders[0], identity))
    chosen = _shared_distance(sorted(found))
    kept = (_Sighting(s.launch, tuple(i for i in s.identities if i in chosen)) for s in sightings)
    return [sighting for sighting in kept if sighting.identities]


def _shared_distance(found: Sequence[tuple[int, int, int]]) -> frozenset[int]:
    """The identities within the factor of two of distance that weighs most. `found`: distance, span, identity."""
    best, best_weight, end, weight = (0, 0), 0.0, 0, 0
    for first, (distance, span, _) in enumerate(found):
        while end < len(found) and found[end][0] < 2 * distance:
            weight += found[end][1]
            end += 1
        if weight * distance**_REACH > best_weight:
            best, best_weight = (first, end), weight * distance**_REACH
        weight -= span
    return frozenset(identity for _, _, identity in found[slice(*best)])


def _beginning(sightings: Sequence[_Sighting]) -> int | None:
    """The first of the anchors that vary with a pass's size: where the shape before does not determine the next.

    A shape is a kernel and its grid. Inside a pass, equal ones are followed by equal ones; at its end a pass of any
    size follows. None where all passes are alike.
    """
    following: defaultdict[tuple[int, int], defaultdict[_Shape, Counter[_Shape]]]
    following = defaultdict(lambda: defaultdict(Counter))
    for here, after in pairwise(sightings):
        following[here.identities[0], after.identities[0]][_shape(here)][_shape(after)] += 1
    surprises = {
        pair: sum(shapes.total() - max(shapes.values()) for shapes in followed.values())
        for pair, followed in following.items()
    }
    (_, first), most = max(surprises.items(), key=lambda entry: entry[1], default=((0, 0), 0))
    return first if most else None


def _segments(sightings: Sequence[_Sighting], first: int | None) -> list[_Segment]:
    """The sightings, cut at the `first` anchor and where anchors start over."""
    segments: list[list[_Sighting]] = []
    seen: set[int] = set()
    single = len({identity for s in sightings for identity in s.identities}) == 1
    for index, sighting in enumerate(sightings):
        cut = not segments or first in sighting.identities
        if not cut and not seen.isdisjoint(sighting.identities):
            cut = single or _start_over(sightings[index : index + max(2, min(_AHEAD, len(segments[-1])))], seen, first)
        if cut:
            segments.append([])
            seen = set()
        segments[-1].append(sighting)
        seen.update(sighting.identities)
    return [tuple(segment) for segment in segments]


def _start_over(ahead: Sequence[_Sighting], seen: set[int], first: int | None) -> bool:
    """Whether anchors that were seen since the last cut are those of two launches in turn, and more than a third of
    those up to the next cut at `first`.

    A single one may be late, and a few may be memory that only this pass uses over and over.
    """
    if len(ahead) < 2 or any(seen.isdisjoint(sighting.identities) for sighting in ahead[:2]):
        return False
    before = takewhile(lambda sighting: first not in sighting.identities, ahead)
    coming = {identity for sighting in before for identity in sighting.identities}
    return _REPEATED * len(coming) < len(coming & seen)


def _family(segments: Sequence[_Segment]) -> list[_Segment]:
    """The segments that are passes: whole ones, from the first kernel that most whole ones launch to the last.

    What initialises the memory touches each anchor too, but with other kernels.
    """
    most = max(map(len, segments), default=0)
    whole = [segment for segment in segments if _whole(segment, most)]
    launched = Counter(symbol for segment in whole for symbol in {s.launch.symbol for s in segment})
    common = {symbol for symbol, count in launched.items() if 2 * count >= len(whole) and count > 1}
    passes = []
    for segment in whole:
        indices = [index for index, sighting in enumerate(segment) if sighting.launch.symbol in common]
        if len(indices) >= _FAMILY * len(segment):
            passes.append(segment[indices[0] : indices[-1] + 1])
    return [segment for segment in passes if _whole(segment, most)]


def _whole(segment: _Segment, most: int) -> bool:
    return 2 * len(segment) >= most
