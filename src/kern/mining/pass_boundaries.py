"""Where passes end: the launches between the last anchor of one and the first of the next, divided between the two.

A launch belongs to the pass with whose token count its numbers vary: the one before or the one after. Where no numbers
vary, passes are divided where the program waits longest. Waits are compared by their median over all gaps in which the
same two kinds of events follow each other, so that one odd wait decides nothing.

Four passes that begin with `gather` and end with `best`, neither of which is in the cores:

>>> names, tokens = ("gather", "scale", "best"), (1, 5, 2, 34)
>>> run = [(name, count) for count in tokens for name in names]
>>> events = [launch(order, *each) for order, each in enumerate(run)]
>>> divide(events, [(1, 2), (4, 5), (7, 8), (10, 11)], tokens)
((0, 3), (3, 6), (6, 9), (9, 12))
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Final, TypeAlias

from kern.mining.events import Copy, Event, Launch
from kern.mining.expression_fit import fit
from kern.mining.segmentation import Span

_FAR: Final = 2
"""A gap this many times as long as the usual one holds more than the ends of two passes."""

_Slot: TypeAlias = tuple[Hashable, int, int]
"""A kind of event, the number of the event among those of its kind in a gap, and how many there are."""
_Tree: TypeAlias = dict[Hashable, "_Tree"]


@dataclass(frozen=True, slots=True)
class _Gap:
    """The events between the cores of two passes that follow each other."""

    start: int
    stop: int
    before: int | None
    after: int | None

    def slots(self, keys: Sequence[Hashable]) -> Iterator[tuple[int, _Slot]]:
        """Each event's order, and what corresponds to it in other gaps."""
        total = Counter(keys[self.start : self.stop])
        seen: Counter[Hashable] = Counter()
        for at in range(self.start, self.stop):
            yield at, (keys[at], seen[keys[at]], total[keys[at]])
            seen[keys[at]] += 1


def divide(events: Sequence[Event], cores: Sequence[Span], tokens: Sequence[int | None]) -> tuple[Span, ...]:
    """The passes in full, from their cores and token counts."""
    if not cores:
        return ()
    keys = [_key(event) for event in events]
    gaps = [_Gap(cores[i][1], cores[i + 1][0], tokens[i], tokens[i + 1]) for i in range(len(cores) - 1)]
    usual = median(gap.stop - gap.start for gap in gaps) if gaps else 0
    close = [gap for gap in gaps if gap.stop - gap.start <= _FAR * (usual + 1)]
    ends = _ends(close, events, keys)
    tails = _tree(keys[gap.start : ends[gap]] for gap in close)
    heads = _tree(keys[ends[gap] : gap.stop][::-1] for gap in close)
    spans = []
    for (start, stop), before, after in zip(cores, [None, *gaps], [*gaps, None], strict=True):
        head = ends.get(before) if before else None
        tail = ends.get(after) if after else None
        if head is None:
            head = start - _shared(keys[before.start if before else 0 : start][::-1], heads)
        if tail is None:
            tail = stop + _shared(keys[stop : after.stop if after else None], tails)
        spans.append((head, tail))
    return tuple(spans)


def _key(event: Event) -> Hashable:
    """What kind of event this is."""
    if isinstance(event, Launch):
        return event.kernel.key
    return ("copy", event.kind) if isinstance(event, Copy) else ("fill", event.width)


def _ends(gaps: Sequence[_Gap], events: Sequence[Event], keys: Sequence[Hashable]) -> dict[_Gap, int]:
    """Where each gap is divided: so that most launches are on their side; among these at the longest wait, or the last.

    Waits within a factor of two are equally long.
    """
    votes = _votes(gaps, events, keys)
    waits: defaultdict[Hashable, list[int]] = defaultdict(list)
    for gap in gaps:
        for at in range(gap.start, gap.stop + 1):
            waits[keys[at - 1], keys[at]].append(events[at].time - events[at - 1].time)
    usual = {pair: int(median(found)).bit_length() for pair, found in waits.items()}

    def end(gap: _Gap) -> int:
        agreed = list(accumulate((votes.get(slot, 0) for _, slot in gap.slots(keys)), initial=0))
        best = max(agreed)
        candidates = [gap.start + i for i, total in enumerate(agreed) if total == best]
        return max(candidates, key=lambda at: (usual[keys[at - 1], keys[at]], at))

    return {gap: end(gap) for gap in gaps}


def _votes(gaps: Sequence[_Gap], events: Sequence[Event], keys: Sequence[Hashable]) -> dict[_Slot, int]:
    """For each slot 1 where its numbers follow the pass before, -1 where they follow the one after, 0 or nothing else.

    The sum of the votes up to an event is then the number of those on their side, except for a constant.
    """
    seen: defaultdict[tuple[_Slot, str], list[tuple[int, _Gap]]] = defaultdict(list)
    for gap in gaps:
        if gap.before is not None and gap.after is not None:
            for at, slot in gap.slots(keys):
                for name, value in _numbers(events[at]):
                    seen[slot, name].append((value, gap))
    votes: dict[_Slot, int] = {}
    for (slot, _), found in seen.items():
        if len({value for value, _ in found}) > 1:
            before = _follows((gap.before, value) for value, gap in found)
            after = _follows((gap.after, value) for value, gap in found)
            votes[slot] = max(-1, min(1, votes.get(slot, 0) + before - after))
    return votes


def _follows(samples: Iterable[tuple[int | None, int]]) -> bool:
    return fit((tokens, value) for tokens, value in samples if tokens is not None).status != "unfit"


def _numbers(event: Event) -> Iterator[tuple[str, int]]:
    """What varies with a token count: a launch's grid and short integers, a copy's or fill's bytes."""
    if not isinstance(event, Launch):
        yield "size", event.size
        return
    for axis, value in enumerate(event.grid):
        yield f"grid {axis}", value
    for index, param in enumerate(event.params or ()):
        if len(param) == 4:
            yield f"param {index}", event.integer(index)


def _tree(sequences: Iterable[Sequence[Hashable]]) -> _Tree:
    """The sequences as a tree of what may follow what."""
    root: _Tree = {}
    for sequence in sequences:
        node = root
        for key in sequence:
            node = node.setdefault(key, {})
    return root


def _shared(keys: Iterable[Hashable], known: _Tree) -> int:
    """How many of the first `keys` are the beginning of one of the known sequences."""
    shared, node = 0, known
    for key in keys:
        if key not in node:
            break
        shared, node = shared + 1, node[key]
    return shared
