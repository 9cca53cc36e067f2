"""What must hold on the device after each round of speculation, whatever the model."""

from __future__ import annotations

from collections.abc import Sequence

from kern.contracts.text import PAGE
from kern.runtime.executable import Executable


def assert_between_rounds(executable: Executable, ids: Sequence[int], anchor: int, accepted: Sequence[int]) -> None:
    """The state after rounds that accepted these many: `ids` is the whole text, its place `anchor` the next anchor.

    The pages are as many as the capacity takes, in order.
    """

    slots = -(-executable.capacity // PAGE) * PAGE
    count = executable.manifest.programs["verify"].symbols["tokens"].min
    assert count is not None
    rows = range(count)

    def read(name: str) -> list[int]:
        found: list[int] = executable.read(name).reshape(-1).tolist()
        return found

    before = anchor - accepted[-1] - 1
    assert read("slot_position")[0] == anchor
    assert read("round_count")[0] == len(accepted)
    assert read("slot_token")[0] == ids[anchor]
    # The rows of the round that is over. Both states now reach up to the anchor, whose own is not written yet.
    assert read("round_tokens")[0] == ids[before]
    assert read("round_positions")[:count] == [before + row for row in rows]
    kept = [row <= accepted[-1] and before + row < slots for row in rows]
    assert read("round_slots")[:count] == [before + row if kept[row] else -1 for row in rows]
    counts, ring = (executable.read(name)[0].tolist() for name in ("accepted", "token_ring"))
    recent = range(max(0, len(accepted) - len(counts)), len(accepted))
    assert [counts[place % len(counts)] for place in recent] == [accepted[place] for place in recent]
    last = range(max(anchor - sum(accepted) - len(accepted), anchor - len(ring) + 1), anchor + 1)
    assert [ring[place % len(ring)] for place in last] == [ids[place] for place in last]
