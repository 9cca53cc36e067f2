"""Cutting a run into passes, by what recurs: no knowledge of the program, and no time alone.

A pass touches the memory that it keeps (its weights) once each, always in the same order; memory that it uses over and
over, or that moves, recurs at other distances. So the addresses that recur at the distance which most of them share,
for longest, are taken for anchors, and a pass begins where they start over. Launches between the last anchor of a pass
and the first of the next one are divided at the place where the program waits longest, judged over all such gaps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final, TypeAlias

import numpy as np

from kern.mining.launches import Copy, Event, Launch

Span: TypeAlias = tuple[int, int]
"""The orders of the first event of a pass and of the one after its last."""

_FAMILY: Final = 0.25
"""The share of a pass's anchors that stand in kernels which most passes launch; initialisation has none of those."""


@dataclass(frozen=True, slots=True)
class _Sighting:
    """An identity was seen in an event."""

    order: int
    identity: int
    symbol: str


def cut(events: Sequence[Event]) -> tuple[Span, ...]:
    """The passes, in order and apart from each other; none where nothing recurs."""
    launches = [event for event in events if isinstance(event, Launch)]
    sightings = _anchors(_addresses(launches)) or _anchors(_symbols(launches))
    passes = _family(_segments(sightings))
    cores = [(part[0].order, part[-1].order + 1) for part in passes]
    return _extended(cores, events)


def _addresses(launches: Sequence[Launch]) -> list[_Sighting]:
    """Each device address in each launch, once."""
    return [
        _Sighting(launch.order, address, launch.symbol)
        for launch in launches
        for address in dict.fromkeys(p.address for p in launch.pointers if p.on_device)
    ]


def _symbols(launches: Sequence[Launch]) -> list[_Sighting]:
    """Kernels in place of addresses, for a record without any."""
    number: dict[str, int] = {}
    return [
        _Sighting(launch.order, number.setdefault(launch.symbol, len(number)), launch.symbol) for launch in launches
    ]


def _anchors(sightings: Sequence[_Sighting]) -> list[_Sighting]:
    """The sightings of those identities that recur at one distance: that which they share for longest.

    An identity's distance is the lower median of the events between its sightings, and counts for as long as it is
    seen. Distances within a factor of two belong together. The weight grows with the root of the distance: what is
    used in every part of a pass recurs at short distances, but is little beside the weights; what is used in some
    passes only recurs at longer ones, and is less still.
    """
    if not sightings:
        return []
    orders = np.array([s.order for s in sightings])
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


def _segments(sightings: Sequence[_Sighting]) -> list[list[_Sighting]]:
    """The sightings, cut where the anchors start over: two that follow each other were both seen since the last cut.

    Two, since one alone may be a launch that came late.
    """
    segments: list[list[_Sighting]] = []
    seen: set[int] = set()
    single = len({s.identity for s in sightings}) == 1
    for here, after in pairwise([*sightings, *sightings[-1:]]):
        again = here.identity in seen and (single or (after.identity in seen and after is not here))
        if again or not segments:
            segments.append([])
            seen = set()
        segments[-1].append(here)
        seen.add(here.identity)
    return segments


def _family(segments: Sequence[list[_Sighting]]) -> list[list[_Sighting]]:
    """The segments that are passes: whole ones, that launch what most whole ones launch."""
    most = max((len(segment) for segment in segments), default=0)
    whole = [segment for segment in segments if 2 * len(segment) >= most]
    launched = Counter(symbol for segment in whole for symbol in {s.symbol for s in segment})
    common = {symbol for symbol, count in launched.items() if 2 * count >= len(whole) and count > 1}
    return [s for s in whole if sum(x.symbol in common for x in s) >= _FAMILY * len(s)]


def _extended(cores: Sequence[Span], events: Sequence[Event]) -> tuple[Span, ...]:
    """Passes from their cores: each gap between two cores is divided between them."""
    if not cores:
        return ()
    keys = [_key(event) for event in events]
    gaps = [(before[1], after[0]) for before, after in pairwise(cores)]
    usual = median([stop - start for start, stop in gaps]) if gaps else 0
    close = [gap for gap in gaps if gap[1] - gap[0] <= 2 * usual + 2]
    waits = _waits(close, events, keys)
    divided = {gap: _longest_wait(gap, keys, waits) for gap in close}
    tails = [keys[start:at] for (start, _), at in divided.items()]
    heads = [keys[at:stop] for (_, stop), at in divided.items()]
    spans = []
    for (start, stop), before, after in zip(cores, [None, *gaps], [*gaps, None], strict=True):
        if before in divided:
            start = divided[before]
        else:
            start -= _like(keys[before[0] if before else 0 : start][::-1], [head[::-1] for head in heads])
        if after in divided:
            stop = divided[after]
        else:
            stop += _like(keys[stop : after[1] if after else None], tails)
        spans.append((start, stop))
    return tuple(spans)


def _key(event: Event) -> Hashable:
    """What kind of event this is."""
    if isinstance(event, Launch):
        return event.kernel.key
    return ("copy", event.kind) if isinstance(event, Copy) else ("fill", event.width)


def _waits(gaps: Sequence[Span], events: Sequence[Event], keys: Sequence[Hashable]) -> dict[Hashable, float]:
    """The time that usually passes between two kinds of events that follow each other in a gap."""
    times: defaultdict[Hashable, list[int]] = defaultdict(list)
    for start, stop in gaps:
        for at in range(start, stop + 1):
            times[keys[at - 1], keys[at]].append(events[at].time - events[at - 1].time)
    return {pair: median(found) for pair, found in times.items()}


def _longest_wait(gap: Span, keys: Sequence[Hashable], waits: dict[Hashable, float]) -> int:
    return max(range(gap[0], gap[1] + 1), key=lambda at: waits[keys[at - 1], keys[at]])


def _like(keys: Sequence[Hashable], known: Sequence[Sequence[Hashable]]) -> int:
    """How many of the first `keys` are the beginning of one of the known sequences."""
    longest = 0
    for sequence in known:
        same = 0
        for one, other in zip(keys, sequence, strict=False):
            if one != other:
                break
            same += 1
        longest = max(longest, same)
    return longest
