"""A tiny model stepped through on a GPU: hooks read memory between launches, and the results are those of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kern.runtime.loading import load
from kern.runtime.stepping import SteppedLaunch
from support.tiny import prompt

pytestmark = pytest.mark.gpu


def test_hooks_read_gpu_memory_and_stepping_leaves_the_state_of_a_run(tiny: Path) -> None:
    states, changed = [], set[str]()
    before: dict[int, bytes] = {}

    def note(launch: SteppedLaunch) -> None:
        before.clear()
        before.update({each.declared.index: each.read() for each in launch.accesses})

    def compare(launch: SteppedLaunch) -> None:
        for each in launch.accesses:
            if each.read() != before[each.declared.index]:
                assert each.declared.writes or any(
                    other.declared.writes and other.address < each.address + each.size
                    and each.address < other.address + other.size
                    for other in launch.accesses
                )  # fmt: skip
                changed.add(each.declared.name)

    values = {"tokens": 16, "seqs": 1, "pages": 4}
    positions = np.arange(16, dtype=np.int64)
    inputs = {
        "token_ids": prompt(16), "positions": positions, "slot_mapping": positions, "seq_lens": [16],
        "cu_seqlens_q": [0, 16], "block_table": [[0, 1, 2, 3]],
    }  # fmt: skip
    for step in (False, True):
        with load(tiny, capacity=64) as executable:
            for name, array in inputs.items():
                executable.write(name, array, values)  # type: ignore[arg-type]
            if step:
                executable.step("prefill", values, before=note, after=compare)
            else:
                executable.run("prefill", values)
            states.append(executable.read_state("kv"))
    np.testing.assert_array_equal(states[0], states[1])
    assert "kv" in changed
