"""Admission, growth and preemption, on a device that exists only here: its memory is a list of page contents."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kern.contracts.text import PAGE
from kern.engine.decoding import decode
from kern.engine.pages import PagePool, PoolExhausted, WrongPage
from kern.engine.schedule import Chosen, Member, Plan, Schedule, pages_of

RING = 64


def next_id(ids: Sequence[int]) -> int:
    """What the model of these tests chooses after `ids`: it depends on each of them and on its place."""
    return sum((place + 1) * (id + 3) for place, id in enumerate(ids)) % 1009


def continuation(prompt: Sequence[int], count: int) -> list[int]:
    ids = list(prompt)
    for _ in range(count):
        ids.append(next_id(ids))
    return ids[len(prompt) :]


class Device:
    """Runs each plan at once, on memory that knows nothing but pages and slots."""

    ahead = True

    def __init__(self, pages: int, slots: int, *, late: bool, seed: int = 0) -> None:
        self.memory = np.full((pages, PAGE), -7)
        self.owner: dict[int, Member] = {}
        self.token = [-9] * slots
        self.ring = np.full((slots, RING), -5)
        self.calls: list[Plan] = []
        self.late, self.random = late, random.Random(seed)

    def launch(self, plan: Plan) -> str:
        self.calls.append(plan)
        slots = [part.member.slot for part in plan.parts]
        assert len(set(slots)) == len(slots)
        pages = [page for part in plan.parts for page in part.member.pages]
        assert len(set(pages)) == len(pages), "a page has two owners"
        for tick in range(plan.ticks):
            for part in plan.parts:
                self._row(part.member, part.start + tick, part.count, part.chosen, part.fed or tick > 0)
        return plan.kind

    def _row(self, member: Member, start: int, count: int, chosen: bool, fed: bool) -> None:
        given = [self.token[member.slot]] if fed else member.ids[start : start + count]
        assert len(given) == count
        for position, id in enumerate(given, start):
            self.memory[member.pages[position // PAGE], position % PAGE] = id
        if chosen:
            end = start + count
            ids = [int(self.memory[member.pages[place // PAGE], place % PAGE]) for place in range(end)]
            self.token[member.slot] = next_id(ids)
            self.ring[member.slot, end % RING] = self.token[member.slot]

    def read(self) -> Any:
        ring = self.ring.copy()
        done = not self.late or self.random.random() < 0.3
        return SimpleNamespace(done=lambda: done, wait=lambda: ring)


def run(device: Device, schedule: Schedule, members: Sequence[Member]) -> list[Chosen]:
    for member in members:
        schedule.add(member)
    return list(decode(device, schedule))


def schedule_of(pages: int, slots: int, **options: Any) -> Schedule:
    return Schedule(PagePool(pages), slots=slots, **({"chunk": 32, "rows": 64, "mixed": True, "ticks": 2} | options))


@given(
    lengths=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 40)), min_size=1, max_size=12),
    slots=st.integers(1, 5),
    spare=st.integers(0, 12),
    chunk=st.integers(1, 40),
    mixed=st.booleans(),
    ticks=st.integers(1, 3),
    late=st.booleans(),
    seed=st.integers(0, 99),
)
def test_each_sequence_gets_the_ids_that_it_has_alone(
    lengths: list[tuple[int, int]], slots: int, spare: int, chunk: int, mixed: bool, ticks: int, late: bool, seed: int
) -> None:
    prompts = [[(index * 31 + place * 7) % 500 for place in range(length)] for index, (length, _) in enumerate(lengths)]
    pages = max(pages_of(length + count - 1) for length, count in lengths) + spare
    device = Device(pages, slots, late=late, seed=seed)
    schedule = schedule_of(pages, slots, chunk=chunk, rows=chunk + slots, mixed=mixed, ticks=ticks)
    members = [Member(list(ids), len(ids) + count) for ids, (_, count) in zip(prompts, lengths, strict=True)]

    chosen = run(device, schedule, members)

    for ids, member, (_, count) in zip(prompts, members, lengths, strict=True):
        assert member.ids[len(ids) :] == continuation(ids, count)
        mine = [each for each in chosen if each.member is member]
        assert [each.id for each in mine] == member.ids[len(ids) :]
        assert [each.index for each in mine] == list(range(len(ids), len(ids) + count))
    assert schedule.pool.free == pages
    assert not schedule.running
    assert not schedule.waiting
    assert all(sum(part.count for part in plan.parts) <= chunk + slots for plan in device.calls)


def test_a_member_that_loses_its_pages_is_computed_again_and_the_first_ones_are_not() -> None:
    device = Device(8, 3, late=True)
    members = [Member([index] * 20, 20 + 40) for index in range(3)]
    last = Member([9] * 16, 18)

    run(device, schedule_of(8, 3), [*members, last])

    begun = [part.member for plan in device.calls for part in plan.parts if part.start == 0]
    fills = [begun.count(member) for member in members]
    assert fills[0] == 1
    assert fills[2] > 1
    assert begun.index(last) == len(begun) - 1, "who was there first continues before the next one begins"
    assert all(each.ids[20:] == continuation([index] * 20, 40) for index, each in enumerate(members))


def test_members_begin_in_their_order() -> None:
    device = Device(8, 2, late=False)
    members = [Member([index] * 16, 18) for index in range(7)]

    chosen = run(device, schedule_of(8, 2), members)

    begun = list(dict.fromkeys(members.index(each.member) for each in chosen))
    assert begun == list(range(7))


def test_a_member_that_ends_early_frees_its_slot_and_its_pages_for_the_next() -> None:
    device = Device(8, 1, late=True)
    schedule = schedule_of(8, 1)
    members = [Member([3] * 40, 100), Member([4] * 40, 50)]
    for member in members:
        schedule.add(member)
    given = 0
    for chosen in decode(device, schedule):
        if chosen.member is members[0]:
            given += 1
            if given == 5:
                schedule.end(chosen.member)

    assert given == 5
    assert members[0].ids[40:] == continuation([3] * 40, 5)
    assert members[1].ids[40:] == continuation([4] * 40, 10)
    assert schedule.pool.free == 8


def test_a_member_that_waits_can_be_ended() -> None:
    schedule = schedule_of(8, 1)
    members = [Member([3] * 40, 60), Member([4] * 40, 50)]
    schedule.add(members[0])
    schedule.add(members[1])
    assert schedule.plan() is not None
    schedule.end(members[1])

    assert {each.member for each in decode(Device(8, 1, late=False), schedule)} <= {members[0]}
    assert schedule.pool.free == 8


def test_while_pages_are_plenty_they_are_given_several_at_once() -> None:
    device, schedule = Device(64, 4, late=False), schedule_of(64, 4)
    members = [Member([index], 100) for index in range(4)]
    for member in members:
        schedule.add(member)
    counts = {len(members[0].pages) for _ in decode(device, schedule)}

    assert counts - {0} == {1, 5, 7}, "one for the prompt, four more, and the last two: it ends at 99 states"


def test_prompts_can_be_computed_so_that_all_members_begin_together() -> None:
    schedule, device = schedule_of(32, 4, chunk=10), Device(32, 4, late=False)
    members = [Member(list(range(length)), length + 8) for length in (1, 5, 23, 16)]
    for member in members:
        schedule.add(member)
    while plan := schedule.prefill():
        assert sum(part.count for part in plan.parts) <= 10
        device.launch(plan)
    first = [each.member for each in list(decode(device, schedule))[:4]]

    assert first == members
    assert all(
        each.ids[length:] == continuation(range(length), 8)
        for each, length in zip(members, (1, 5, 23, 16), strict=True)
    )


@pytest.mark.parametrize(("prompt", "count"), [(40, 2), (20, 40)])
def test_a_pool_without_room_for_a_member_alone_is_an_error(prompt: int, count: int) -> None:
    schedule = schedule_of(2, 2)
    schedule.add(Member([1] * prompt, prompt + count))
    with pytest.raises(PoolExhausted):
        list(decode(Device(2, 2, late=False), schedule))


def test_a_page_is_given_once_until_it_is_released() -> None:
    pool = PagePool(5)
    assert pool.allocate(3) == [0, 1, 2]
    with pytest.raises(PoolExhausted, match="3 pages were requested and 2 of 5 are free"):
        pool.allocate(3)
    assert pool.allocate(2) == [3, 4]
    pool.release([1, 4])
    assert pool.free == 2
    for page in (1, 5, -1):
        with pytest.raises(WrongPage, match=f"page {page} of 5 is not in use"):
            pool.release([page])
    assert pool.allocate(2) == [1, 4]
    assert pool.allocate(0) == []


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans())), st.integers(1, 30))
def test_no_page_has_two_owners(moves: list[tuple[int, bool]], size: int) -> None:
    pool, owned = PagePool(size), list[list[int]]()
    for count, take in moves:
        if take and count <= pool.free:
            owned.append(pool.allocate(count))
        elif owned:
            pool.release(owned.pop(count % len(owned)))
        used = [page for pages in owned for page in pages]
        assert len(set(used)) == len(used) == size - pool.free
        assert set(used) <= set(range(size))
