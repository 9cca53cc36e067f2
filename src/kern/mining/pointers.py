"""How each address that a kernel is given changes over the passes.

>>> from kern.mining.call_sites import align
>>> passes = [[launch(0, "scale", 1, 0xA, 0xC1)], [launch(1, "scale", 5, 0xA, 0xC2)]]
>>> sites, _ = align(passes)
>>> uses = classify(sites, [Pass(n, None, 0, None, tuple(each)) for n, each in enumerate(passes)])[sites[0]]
>>> [(use.param, use.stability, use.addresses) for use in uses]
[(0, 'own', (10, 10)), (1, 'varying', (193, 194))]
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kern.mining.call_sites import Site
from kern.mining.events import Copy, Pointer
from kern.mining.passes import Pass
from kern.mining.schema import Memory

Stability = Literal["own", "shared", "varying", "once"]
"""`own`: one address in all passes, which no other call site of this kernel is given there. `shared`: one address in
all passes, which others are given too. `varying`: it differs between passes. `once`: seen in a single pass."""

Offset: TypeAlias = tuple[int, int]
"""A parameter, and the byte in it."""


@dataclass(frozen=True, slots=True)
class PointerUse:
    """Bytes of a call site's parameters that hold an address.

    `addresses` has one for each launch, None where that held none (a null pointer). `ranges` are the allocations
    they lie in, by base and bytes. `copied`: in each pass the host has copied into this address before the launch.
    """

    param: int
    at: int
    memory: Memory
    stability: Stability
    addresses: tuple[int | None, ...]
    ranges: frozenset[tuple[int, int]]
    copied: bool

    @property
    def address(self) -> int | None:
        """The one address, None where there are several."""
        return self.addresses[0] if len(set(self.addresses)) == 1 else None


def classify(sites: Sequence[Site], passes: Sequence[Pass]) -> dict[Site, tuple[PointerUse, ...]]:
    """The pointers of each call site."""
    arrivals = [_Arrivals(each) for each in passes]
    found = {site: _at_offsets(site) for site in sites}
    given: defaultdict[tuple[tuple[str, str], Offset], Counter[int]] = defaultdict(Counter)
    for site, by_offset in found.items():
        for offset, pointers in by_offset.items():
            addresses = {pointer.address for pointer in pointers if pointer}
            given[site.kernel.key, offset].update(addresses)
    return {
        site: tuple(
            _use(site, offset, pointers, given[site.kernel.key, offset], arrivals) for offset, pointers in held.items()
        )
        for site, held in found.items()
    }


def _at_offsets(site: Site) -> dict[Offset, list[Pointer | None]]:
    """The pointers at each offset of a site, launch by launch."""
    by_offset: dict[Offset, list[Pointer | None]] = {offset: [] for offset in site.pointer_offsets()}
    for launch in site.launches:
        here = {(pointer.param, pointer.at): pointer for pointer in launch.pointers}
        for offset, pointers in by_offset.items():
            pointers.append(here.get(offset))
    return by_offset


def _use(
    site: Site,
    offset: Offset,
    pointers: Sequence[Pointer | None],
    given: Mapping[int, int],
    arrivals: Sequence[_Arrivals],
) -> PointerUse:
    addresses = tuple(pointer.address if pointer else None for pointer in pointers)
    there = [pointer for pointer in pointers if pointer]
    return PointerUse(
        *offset,
        there[0].memory,
        _stability(addresses, given),
        addresses,
        frozenset(pointer.range for pointer in there if pointer.range),
        all(
            pointer is not None and arrivals[index].holds(pointer.address, launch.order)
            for index, launch, pointer in zip(site.passes, site.launches, pointers, strict=True)
        ),
    )


def _stability(addresses: Sequence[int | None], given: Mapping[int, int]) -> Stability:
    if len(addresses) == 1:
        return "once"
    if len(set(addresses)) > 1:
        return "varying"
    address = addresses[0]
    return "shared" if address is not None and given[address] > 1 else "own"


class _Arrivals:
    """Where the host copies to in a pass."""

    def __init__(self, each: Pass) -> None:
        copies = sorted(
            (copy for copy in each.copies if copy.kind == "HtoD"), key=lambda copy: (copy.target, copy.order)
        )
        self._copies: list[Copy] = copies
        self._targets = [copy.target for copy in copies]

    def holds(self, address: int, order: int) -> bool:
        """Whether a copy into `address` comes before the event of that order."""
        last = bisect_right(self._targets, address)
        return any(
            copy.order < order and copy.target <= address < copy.target + copy.size
            for copy in self._copies[max(0, last - 8) : last]
        )
